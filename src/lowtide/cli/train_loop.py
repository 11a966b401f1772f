"""The loop of `lowtide train`: a line per step, and eager training beside it where wanted."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor
from torch.optim import Optimizer

import lowtide
from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.errors import EagerMismatch
from lowtide.experiments.eager_training import EagerCopy, EagerTraining, differences
from lowtide.forecast import Forecast
from lowtide.kernels.replay import generator_state
from lowtide.models.training import Training
from lowtide.optimizer.update import describe
from lowtide.profiling.runs import no_collection
from lowtide.records.training_run import TrainedStep, TrainingRun
from lowtide.reporting.training_table import step_line
from lowtide.training.train_step import TrainStep


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for."""

    steps: int
    seed: int
    accumulate: int
    clip_grad_norm: float | None
    budget: str | None
    policy: str
    plan: Path | None
    time_limit: float | None
    compare: bool
    memory_limit: int | None
    swap: str = "off"
    swap_dir: Path | None = None


def train_loop(
    training: Training,
    optimizer: Optimizer,
    wanted: Wanted,
    console: Console,
    *,
    group: Any = None,
    twin: EagerTraining | None = None,
) -> tuple[TrainingRun, TrainStep]:
    """Make the step, train, and say what happened.

    One rank of several gives the process `group` of a plain model, and its own eager `twin` where that is wanted.
    """
    began = perf_counter()
    step = lowtide.train_step(
        training.model,
        optimizer,
        training.batch,
        training.loss,
        budget=wanted.budget,
        policy=wanted.policy,
        clip_grad_norm=wanted.clip_grad_norm,
        accumulate=wanted.accumulate,
        plan=wanted.plan,
        time_limit=wanted.time_limit,
        swap=wanted.swap,
        swap_dir=wanted.swap_dir,
        measure="before",  # the table and the times are of planned steps
        sentinel=not wanted.compare,  # an eager copy that takes every step sees more
        process_group=group,
        progress=False if console.quiet else None,
    )
    startup = perf_counter() - began
    if wanted.compare and twin is None:
        twin = EagerCopy(
            *(training.model, optimizer, training.loss),
            accumulate=wanted.accumulate,
            clip_grad_norm=wanted.clip_grad_norm,
        )
    loop = _Loop(step, training, optimizer, wanted.seed, twin)
    if isinstance(twin, EagerCopy):  # on several ranks there is no such check
        loop.check_gradients()
    limit = None if step.plan is None else step.plan.budget
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=wanted.steps)
        for number in range(1, wanted.steps + 1):
            taken, loss = loop.step()
            bar.console.print(step_line(number, wanted.steps, taken, loss, limit), soft_wrap=True)
            bar.advance(task)
    run = TrainingRun(
        model=training.name,
        batch=step.graph.form.lines,
        optimizer=describe(optimizer),
        device=str(step.graph.device),
        torch=str(torch.__version__),
        lowtide=version("lowtide"),
        threads=torch.get_num_threads(),
        memory_source=meter_for(step.graph.device).name,
        seed=wanted.seed,
        accumulate=wanted.accumulate,
        clip_grad_norm=wanted.clip_grad_norm,
        memory_limit_B=wanted.memory_limit,
        plan=None if step.plan is None else Forecast(step.plan).figures,
        startup_s=startup,
        steps=tuple(loop.taken),
        compared=wanted.compare,
        difference=loop.difference,
    )
    return run, step


def write_results(
    run: TrainingRun, step: TrainStep, folder: Path | None, names: Sequence[str], save_plan: Path | None
) -> None:
    """The plan where it was asked for; into `folder` the run and, of a planned one, picture and plan, by `names`; of
    several ranks a picture of the lanes too."""
    if save_plan is not None:
        step.save_plan(save_plan)
    if folder is None:
        return
    run.save(folder / names[0])
    if step.plan is not None:
        from lowtide.reporting.step_memory import draw_step_memory

        draw_step_memory(step.plan, run.model, folder / names[1])
        step.save_plan(folder / names[2])
        for lanes in names[3:]:
            from lowtide.kernels.collectives import COLLECTIVES
            from lowtide.reporting.step_lanes import draw_lanes

            collectives = {op.captured_name for op in step.graph.ops if op.node.target in COLLECTIVES}
            draw_lanes(step.plan, collectives, run.model, folder / lanes)


class _Loop:
    """Steps of a training and, in turn, of its eager copy; each pair starts from one seed."""

    def __init__(
        self, step: TrainStep, training: Training, optimizer: Optimizer, seed: int, eager: EagerTraining | None
    ) -> None:
        self._step = step
        self._batch = training.batch
        self._ours = (training.model, optimizer)
        self._seed = seed
        self._clock = clock_for(step.graph.device)
        self._eager = eager
        self.taken: list[TrainedStep] = []
        self.difference: str | None = None

    def check_gradients(self) -> None:
        """Every gradient once, before the first step: parameters show them only through the optimizer."""
        try:
            self._step.check(self._batch)
        except EagerMismatch as error:
            self.difference = f"before the first step, {error}"

    def step(self) -> tuple[TrainedStep, float]:
        """The next step of each, compared; what it took, and the loss."""
        number = len(self.taken) + 1
        eager, eager_end = None, None
        if self._eager is not None and number % 2 == 0:  # neither is always the first
            eager, eager_end = self._seeded(number, self._eager.step)
        (result, ms, peak), end = self._seeded(number, self._planned)
        if self._eager is not None and eager is None:
            eager, eager_end = self._seeded(number, self._eager.step)
        loss = float(result[0] if isinstance(result, tuple) else result)
        eager_ms, eager_peak = None, None
        if self._eager is not None and eager is not None and eager_end is not None:
            eager_result, eager_ms, eager_peak = eager
            if self.difference is None:
                theirs = (self._eager.model, self._eager.optimizer)
                found = next(differences(self._ours, theirs, (result, eager_result)), None)
                if found is None and not torch.equal(end, eager_end):
                    found = "the random generator"
                self.difference = None if found is None else f"{found} differs first after step {number}"
        taken = TrainedStep(loss if isfinite(loss) else None, ms, peak, eager_ms, eager_peak)
        self.taken.append(taken)
        return taken, loss

    def _planned(self, batch: Any) -> tuple[Any, float, int | None]:
        with no_collection():
            self._clock.start()
            result = self._step(batch)
            ms = self._clock.stop()
        return result, ms, self._step.measured_peak

    def _seeded(self, number: int, run: Any) -> tuple[tuple[Any, float, int | None], Tensor]:
        """`run` on the batch from the seed of step `number`, and where the random generator ends."""
        torch.manual_seed((self._seed + number) % 2**64)
        taken = run(self._batch)
        return taken, generator_state(self._step.graph.device)
