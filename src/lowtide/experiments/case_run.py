"""Runs one case of an experiment: does what it is told, step by step, and says in the end what it came to.

Running out of memory and a budget that cannot be met end a case, and are its result; other errors are errors.
"""

import gc
from collections.abc import Callable
from math import isfinite
from time import perf_counter

import torch

from lowtide.device.exhausted import is_out_of_memory
from lowtide.device.limit import give_back, limit_memory, process_bytes, usual_device
from lowtide.device.meter import meter_for
from lowtide.errors import InputError
from lowtide.experiments.case import Case, CaseSettings, Outcome, Turns
from lowtide.experiments.case_steps import CaseSteps, WithoutPlan, WithPlan
from lowtide.graph.batch_form import BatchForm
from lowtide.models import ModelOptions, build, make_optimizer
from lowtide.optimizer.update import describe
from lowtide.planning.policies import BudgetInfeasible

RESERVE = 256 * 2**20
"""Of a memory limit, what a budget leaves to the planner, the graph and the allocator's rounding."""


class CaseRun:
    """A case in this process; `begin`, then `step`, `op_by_op` and `give_back` as told, then `end`."""

    def __init__(self, settings: CaseSettings) -> None:
        self._settings = settings
        self._steps: CaseSteps | None = None
        self._outcome, self._failure = Outcome.TRAINED, None
        self._model, self._batch, self._optimizer = settings.model, (), ""
        self._device, self._memory_source = usual_device(), ""
        self._base: int | None = None
        self._startup = 0.0
        self._losses: list[float | None] = []
        self._ms: list[float] = []
        self._peaks: list[int] = []
        self._number = 0

    _failure: str | None
    _batch: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Did it fail, so that there is nothing left to do?"""
        return self._outcome is not Outcome.TRAINED

    @property
    def peaks(self) -> tuple[int, int] | None:
        """Bytes that a step takes, with the plan and as captured; None where nothing is planned."""
        plan = None if self._steps is None else self._steps.plan
        return None if plan is None else (plan.figures.predicted_peak_B, plan.figures.unplanned_peak_B)

    def begin(self) -> None:
        """Build the model, and plan where there is a plan."""
        self._attempt(self._begin)

    def step(self) -> None:
        """One training step."""
        self._attempt(self._step)

    def op_by_op(self) -> None:
        """One training step, every op measured."""
        self._attempt(lambda: self._seeded().op_by_op())

    def give_back(self) -> None:
        """Free memory goes back to the system."""
        give_back()

    def end(self) -> Case:
        """All that was found."""
        steps = self._steps
        return Case(
            settings=self._settings,
            run="",
            turns=Turns.ALONE,
            outcome=self._outcome,
            failure=self._failure,
            model=self._model,
            batch=self._batch,
            optimizer=self._optimizer,
            device=self._device,
            threads=torch.get_num_threads(),
            memory_source=self._memory_source,
            base_B=self._base,
            startup_s=self._startup,
            losses=tuple(self._losses),
            ms=tuple(self._ms),
            peak_B=max(self._peaks, default=None),
            parts=() if steps is None else steps.parts,
            ops=None if steps is None else steps.ops,
            plan=None if steps is None else steps.plan,
        )

    def _attempt(self, action: Callable[[], None]) -> None:
        if self.over:
            return
        try:
            action()
            return
        except BudgetInfeasible as infeasible:
            self._outcome, self._failure = Outcome.INFEASIBLE, str(infeasible)
        except (MemoryError, RuntimeError, InputError) as error:
            if not is_out_of_memory(error):
                raise
            limit = self._settings.memory_limit_B
            under = "" if limit is None else f" within {limit} bytes for the process"
            when = f"in step {self._number}" if self._number else "before the first step"
            self._outcome, self._failure = Outcome.OUT_OF_MEMORY, f"not enough memory{under}, {when}"
        self._steps = None
        gc.collect()

    def _begin(self) -> None:
        wanted = self._settings
        began = perf_counter()
        if wanted.memory_limit_B is not None:
            limit_memory(wanted.memory_limit_B, self._device)
            self._base = process_bytes() if self._device == "cpu" else 0
        options = ModelOptions(wanted.image_size, wanted.seq_len, wanted.dropout)
        training = build(wanted.model, wanted.batch_size, options, seed=wanted.seed)
        optimizer = make_optimizer(wanted.optimizer, training.model, wanted.lr)
        device = next(training.model.parameters()).device
        self._model, self._optimizer, self._device = training.name, describe(optimizer), str(device)
        self._batch = BatchForm.of(training.batch).lines
        self._memory_source = meter_for(device).name
        if wanted.planned:
            self._steps = WithPlan(training, optimizer, self._budget(), wanted.policy, wanted.time_limit)
        else:
            self._steps = WithoutPlan(training, optimizer)
        self._startup = perf_counter() - began

    def _budget(self) -> int | str:
        """The one asked for, or all that the memory limit leaves."""
        wanted = self._settings
        if wanted.budget is not None:
            return wanted.budget
        assert wanted.memory_limit_B is not None, "a planned case has a budget or a limit"
        assert self._base is not None
        left = wanted.memory_limit_B - self._base - RESERVE
        if left <= 0:
            raise InputError(
                f"a memory limit of {wanted.memory_limit_B} bytes leaves nothing to plan with: Python and torch take "
                f"{self._base} bytes, and {RESERVE} are set aside for planning"
            )
        return left

    def _step(self) -> None:
        result, ms, peak = self._seeded().step()
        loss = float(result[0] if isinstance(result, tuple) else result)
        self._losses.append(loss if isfinite(loss) else None)
        if peak is not None:
            self._peaks.append(peak)
        if len(self._losses) > self._settings.warmup:
            self._ms.append(ms)

    def _seeded(self) -> CaseSteps:
        """The steps, with the random generator where every case has it at this step."""
        assert self._steps is not None, "begin comes first"
        self._number += 1
        torch.manual_seed((self._settings.seed + self._number) % 2**64)
        return self._steps
