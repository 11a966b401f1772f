"""One kind of step in this process, told over stdin when to take one: `python -m lowtide.experiments.process.child`."""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from json import dumps
from pathlib import Path
from time import perf_counter
from typing import Any

from lowtide.device.limit import give_back
from lowtide.device.process import forget_high_water, high_water_bytes, page_faults, resident_bytes, warm_memory
from lowtide.experiments.eager_training import EagerTraining, held_bytes
from lowtide.experiments.process.peers import PEERS
from lowtide.experiments.process.record import (
    CAPTURED,
    EAGER,
    WARM,
    KindSettings,
    Promise,
    StepFigures,
    find_variant,
)
from lowtide.forecast import Forecast
from lowtide.models import ModelOptions, build, make_optimizer
from lowtide.planning.policies import BudgetInfeasible
from lowtide.profiling.runs import no_collection
from lowtide.training.options import Options
from lowtide.training.train_step import TrainStep, train_step


class Kind:
    """A model and its steps."""

    def __init__(self, wanted: KindSettings) -> None:
        _rehearse(wanted)
        self.base = resident_bytes()
        training = build(wanted.model, wanted.batch_size, _options(wanted), seed=wanted.seed)
        self._batch = training.batch
        self._optimizer = make_optimizer(wanted.optimizer, training.model, wanted.lr)
        began = perf_counter()
        self.planned: TrainStep | None = None
        self._run: Callable[[Any], tuple[Any, int | None]]
        if wanted.kind in (EAGER, WARM, *PEERS):
            model = PEERS[wanted.kind](training) if wanted.kind in PEERS else training.model
            eager = EagerTraining(model, self._optimizer, training.loss)
            self._run = lambda batch: eager.step(batch)[::2]
        else:
            assert (wanted.budget is None) == (wanted.kind == CAPTURED)
            self.planned = TrainStep(
                training.model, self._optimizer, training.batch, training.loss, _train_options(wanted), None
            )
            self._run = self._planned_step
        self.startup = perf_counter() - began
        self._training = training
        self.ready = resident_bytes() - self.base

    def _planned_step(self, batch: Any) -> tuple[Any, int | None]:
        assert self.planned is not None
        return self.planned(batch), self.planned.measured_peak

    def step(self) -> StepFigures:
        """One, measured."""
        forget_high_water()
        with no_collection():
            faults, began = page_faults(), perf_counter()
            loss, peak = self._run(self._batch)
            ms, faults = 1000 * (perf_counter() - began), page_faults() - faults
        return StepFigures(ms, faults, high_water_bytes() - self.base, peak, float(loss))

    def end(self) -> dict[str, int | None]:
        """What is known afterwards."""
        counts = None if self.planned is None else self.planned.allocations
        return {
            "resident_B": held_bytes(self._training.model, self._optimizer, self._batch),
            "arena_B": None if self.planned is None else self.planned.arena_bytes,
            "unforeseen": None if counts is None else counts.unforeseen + counts.taken,
        }


def _train_options(wanted: KindSettings) -> Options:
    variant = find_variant(wanted.variant)
    return Options(
        budget=wanted.budget,
        policy=variant.policy,
        clip_grad_norm=None,
        accumulate=1,
        time_limit=wanted.time_limit,
        progress=False,
        swap=variant.swap,
        swap_dir=None,
        side_effects="refuse",
        sentinel=False,  # only the step itself is measured
        keep_gradients=False,
        forms=1,
        measure="before",
        counts=variant.counts,
        allowed=variant.allowed,
        addresses=variant.addresses,
    )


def _promise(step: TrainStep | None) -> dict[str, float] | None:
    if step is None or step.plan is None:
        return None
    forecast = Forecast(step.plan)
    return asdict(Promise(forecast.peak, forecast.overhead, step.plan.bound))


def _options(wanted: KindSettings) -> ModelOptions:
    return ModelOptions(wanted.image_size, wanted.seq_len, wanted.dropout)


def _rehearse(wanted: KindSettings) -> None:
    """Build the model and let it go, train a tiny one in a budget: all code is loaded before anything is counted."""
    build(wanted.model, wanted.batch_size, _options(wanted), seed=wanted.seed)
    training = build("mlp", 2, ModelOptions(), seed=0)
    optimizer = make_optimizer(wanted.optimizer, training.model, wanted.lr)
    batch, loss = training.batch, training.loss
    step = train_step(
        training.model, optimizer, batch, loss, budget="97%", time_limit=1, progress=False, measure="before"
    )
    for _ in range(3):
        step(batch)
    del step, optimizer, training, batch
    give_back()


def main() -> None:
    """Answers a line of JSON to `step` and to `end`, after one that says that it is ready, or why not."""
    wanted = KindSettings.load(Path(sys.argv[1]))
    with warm_memory() if wanted.kind == WARM else nullcontext():
        _answer_all(wanted)


def _answer_all(wanted: KindSettings) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a model prints

    def answer(content: dict[str, Any]) -> None:
        answers.write(dumps(content) + "\n")
        answers.flush()

    try:
        kind = Kind(wanted)
    except BudgetInfeasible as infeasible:
        answer({"failure": str(infeasible)})
        return
    promise = _promise(kind.planned)
    answer({"base_B": kind.base, "ready_B": kind.ready, "startup_s": kind.startup, "promise": promise})
    for line in sys.stdin:
        if line.strip() == "end":
            answer(kind.end())
            return
        answer(asdict(kind.step()))


if __name__ == "__main__":
    main()
