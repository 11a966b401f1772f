"""The two kinds of training that an experiment compares: with a plan, and without one. Both learn the same."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.experiments.case import Activations, Part, PlannedCase
from lowtide.experiments.eager_training import EagerTraining
from lowtide.experiments.measure_plans import by_purpose
from lowtide.experiments.op_times import OpTimes
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.models.training import Training
from lowtide.profiling.runs import OpByOp, no_collection, run_op_by_op
from lowtide.records.vocabulary import Role
from lowtide.tracing.capture import capture
from lowtide.training.train_step import train_step

WORKSPACE = "workspace"


class CaseSteps(ABC):
    """Steps of one training, and op-by-op runs, which are steps as well."""

    def __init__(self, training: Training, optimizer: Optimizer) -> None:
        self._batch = training.batch
        self._optimizer = optimizer
        self._device = next(training.model.parameters()).device
        self._clock, self._meter = clock_for(self._device), meter_for(self._device)
        self._runs: list[OpByOp] = []

    @abstractmethod
    def step(self) -> tuple[Any, float, int | None]:
        """The loss and what came with it, milliseconds, and bytes at the peak."""

    @property
    @abstractmethod
    def graph(self) -> StepGraph:
        """What op-by-op runs run."""

    @property
    def plan(self) -> PlannedCase | None:
        """The plan in figures, where there is one."""
        return None

    def op_by_op(self) -> None:
        """One more iteration, every op measured."""
        self._optimizer.zero_grad(set_to_none=True)
        tensors = self.graph.form.tensors(self._batch)
        self._runs.append(run_op_by_op(self.graph, tensors, self._clock, self._meter, lambda _: None))

    @property
    def ops(self) -> OpTimes | None:
        """Of the op-by-op runs; None where there were none."""
        return by_purpose(self.graph, [run.times for run in self._runs]) if self._runs else None

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the peak of the op-by-op runs is made of."""
        return peak_parts(self.graph, self._runs) if self._runs else ()


class WithoutPlan(CaseSteps):
    """Eager steps; op by op runs the captured step, which is the same iteration."""

    def __init__(self, training: Training, optimizer: Optimizer) -> None:
        super().__init__(training, optimizer)
        self._training = training
        self._eager = EagerTraining(training.model, optimizer, training.loss)
        self._graph: StepGraph | None = None

    def step(self) -> tuple[Any, float, int | None]:
        """An eager step."""
        return self._eager.step(self._batch)

    @property
    def graph(self) -> StepGraph:
        """Captured when first asked for: eager training alone needs none."""
        if self._graph is None:
            self._graph = capture(self._training.model, self._optimizer, self._batch, self._training.loss)
        return self._graph


class WithPlan(CaseSteps):
    """Steps inside a budget."""

    def __init__(
        self, training: Training, optimizer: Optimizer, budget: int | str, policy: str, time_limit: float | None
    ) -> None:
        super().__init__(training, optimizer)
        self._step = train_step(
            training.model,
            optimizer,
            training.batch,
            training.loss,
            budget=budget,
            policy=policy,
            time_limit=time_limit,
            progress=False,
            measure="before",
            sentinel=False,  # only the step itself is timed
        )

    def step(self) -> tuple[Any, float, int | None]:
        """A planned step."""
        with no_collection():
            self._clock.start()
            result = self._step(self._batch)
            ms = self._clock.stop()
        return result, ms, self._step.measured_peak

    @property
    def graph(self) -> StepGraph:
        """The planned step."""
        return self._step.graph

    @property
    def plan(self) -> PlannedCase | None:
        """The plan in figures."""
        plan = self._step.plan
        assert plan is not None, "there is a budget"
        forecast = Forecast(plan)
        return PlannedCase(forecast.figures, Activations.of(plan), forecast.timeline.time, plan.base_time)


def peak_parts(graph: StepGraph, runs: Sequence[OpByOp]) -> tuple[Part, ...]:
    """Bytes of every role, and of the op's workspace, at the highest op of `graph`; they add up to the peak."""
    extra = [
        max(0, max(run.taken[op.rank].peak for run in runs) - sum(graph.storages[s].bytes for s in op.makes))
        for op in graph.ops
    ]
    peak = max(range(len(graph.ops)), key=lambda rank: graph.live_bytes[rank] + extra[rank])
    sizes = dict.fromkeys(Role, 0)
    for storage in graph.storages:
        life = graph.lifetimes.get(storage.index)
        if storage.resident or (life is not None and life.created <= peak <= life.last):
            sizes[storage.role] += storage.bytes
    return (*(Part(role.value, size) for role, size in sizes.items()), Part(WORKSPACE, extra[peak]))
