"""Measures planned steps beside warm eager and captured ones: one profile, all plans in turn, in one run."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

from torch.optim import Optimizer

from lowtide.device.arena import Layout, arena_for
from lowtide.device.clock import Clock, clock_for
from lowtide.device.meter import Meter, meter_for
from lowtide.device.process import warm_memory
from lowtide.device.swap import SwapSpace, Waited
from lowtide.experiments.op_times import OpTimes
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.models.training import Training
from lowtide.optimizer.update import Ledger
from lowtide.planning.policies import BudgetInfeasible
from lowtide.profiling.problem import Lanes
from lowtide.profiling.profile import profile
from lowtide.profiling.runs import no_collection, run_op_by_op
from lowtide.profiling.untouched import untouched
from lowtide.records.profile import Profile
from lowtide.records.step_plan import Allowed, StepPlan
from lowtide.records.vocabulary import Purpose
from lowtide.tracing.capture import capture
from lowtide.tracing.loss import model_loss
from lowtide.training.planned import Variant, apply_plan, make_plan
from lowtide.training.swap_use import SwapUse

Say = Callable[[str], None]
EAGER, CAPTURED = "eager", "captured"


@dataclass(frozen=True, slots=True)
class WantedPlan:
    """A plan that is wanted."""

    policy: str
    budget: int
    swap: bool = False
    """May values leave the device?"""
    recompute: bool = True
    """May values be made again, or packed?"""


@dataclass(frozen=True)
class Measured:
    """Eager, captured and planned steps that took turns in one run. Peaks count the residents."""

    profile: Profile
    memory_source: str
    plans: tuple[StepPlan | str, ...]
    """For each that was asked the plan, or why there is none."""
    keys: tuple[str, ...]
    """For each that was asked the name of its step below; empty where nothing was measured."""
    ms: dict[str, tuple[float, ...]]
    """Per round."""
    waits: dict[str, tuple[float, ...]]
    """Per round, how long the step stood still for copies."""
    peaks: dict[str, int]
    ops: dict[str, OpTimes]

    def shared(self, name: str, batch: tuple[str, ...], warmup: int) -> dict[str, Any]:
        """The fields that all records of such rounds have."""
        measured = self.profile
        return {
            "model": name,
            "batch": batch,
            **{field: getattr(measured, field) for field in ("optimizer", "device", "torch", "threads", "resident_B")},
            "memory_source": self.memory_source,
            "warmup": warmup,
            "unplanned_peak_B": unplanned_peak(measured),
            "eager_ms": self.ms[EAGER],
            "captured_ms": self.ms[CAPTURED],
            "captured_ops": self.ops[CAPTURED],
        }


def unplanned_peak(measured: Profile) -> int:
    """Bytes that the step takes as captured, op by op or in one run."""
    return max(measured.peak_B, measured.step_peak_B)


def budgets_left(measured: Profile, shares: Sequence[float]) -> list[int]:
    """The budgets that leave these shares of the bytes above the residents."""
    above = unplanned_peak(measured) - measured.resident_B
    return [measured.resident_B + math.ceil(share * above) for share in shares]


def captured(training: Training, optimizer: Optimizer) -> tuple[str, StepGraph, Callable[[], Any]]:
    """Its name, its step, and the eager forward pass of the same model on the same batch."""
    loss = training.loss or model_loss
    graph = capture(training.model, optimizer, training.batch, training.loss)
    return training.name, graph, lambda: loss(training.model, training.batch)


def measure_profile(graph: StepGraph, say: Say) -> Profile:
    """The profile that all plans of one run are made from."""
    return profile(graph, runs=3, progress=lambda done, total, what: say(f"profile, {what}, {done} of {total}"))


def measure_plans(
    graph: StepGraph,
    measured: Profile,
    eager_loss: Callable[[], Any],
    asked: Sequence[WantedPlan],
    *,
    rounds: int,
    warmup: int,
    op_runs: int,
    time_limit: float,
    say: Say,
    swap: SwapUse | None = None,
    slowest: float = math.inf,
) -> Measured:
    """Plan `graph` as `asked`, and measure eager, captured and planned steps in turn.

    A round runs every kind of step once, and each round begins with another. Plans that are the same step are measured
    once, those that are predicted to take more than `slowest` times the captured step not at all. Parameters, buffers,
    optimizer and random generators are afterwards as they were before. Plans that swap do so by `swap`, whose times
    `measured` must have.
    """
    lanes = None if swap is None else swap.lanes(graph)
    plans = [
        _plan(graph, measured, wanted, lanes if wanted.swap else None, time_limit, say, f"plan {k + 1} of {len(asked)}")
        for k, wanted in enumerate(asked)
    ]
    if swap is not None:
        swap.make_room((plan for plan in plans if not isinstance(plan, str)), graph.device)
    space = None if swap is None else swap.space
    orders: dict[tuple[int, ...], str] = {}
    keys = []
    graphs = {CAPTURED: graph}
    for plan in plans:
        if isinstance(plan, str) or 1 + Forecast(plan).overhead > slowest:
            keys.append("")
            continue
        key = orders.setdefault(plan.order, f"plan {len(orders) + 1}") if plan.rewritten else CAPTURED
        keys.append(key)
        if key not in graphs:
            graphs[key] = apply_plan(graph, plan).graph
    clock, meter = clock_for(graph.device), meter_for(graph.device)
    race = _Race(graph, eager_loss, graphs, clock, meter, space)
    with warm_memory(), untouched(graph, graph.form.own_tensors(graph.example)):
        for number in range(warmup + rounds):
            say(f"round {number + 1} of {warmup + rounds}")
            race.round(number, counts=number >= warmup)
        ops = _op_times(graphs, graph, clock, meter, space, op_runs, say)
    return Measured(
        profile=measured,
        memory_source=meter.name,
        plans=tuple(plans),
        keys=tuple(keys),
        ms={kind: tuple(times) for kind, times in race.times.items()},
        waits={kind: tuple(times) for kind, times in race.waits.items()},
        peaks={kind: measured.resident_B + peak for kind, peak in race.peaks.items()},
        ops=ops,
    )


def _plan(
    graph: StepGraph,
    measured: Profile,
    wanted: WantedPlan,
    lanes: Lanes | None,
    time_limit: float,
    say: Say,
    stage: str,
) -> StepPlan | str:
    """The plan, or why there is none."""
    variant = Variant(graph, measured)
    try:
        _, plan = make_plan(
            variant,
            None,
            wanted.budget,
            name=wanted.policy,
            time_limit=time_limit,
            say=lambda what: say(f"{stage}, {what}"),
            lanes=lanes,
            allowed=Allowed(recompute=wanted.recompute, pack=wanted.recompute),
        )
    except BudgetInfeasible as infeasible:
        return str(infeasible)
    return plan


class _Race:
    """Kinds of step that take turns."""

    def __init__(
        self,
        graph: StepGraph,
        eager_loss: Callable[[], Any],
        graphs: dict[str, StepGraph],
        clock: Clock,
        meter: Meter,
        space: SwapSpace | None,
    ) -> None:
        assert graph.optimizer is not None
        self._optimizer = graph.optimizer
        self._eager_loss = eager_loss
        self._graphs = graphs
        self._batch = graph.form.tensors(graph.example)
        self._clock, self._meter, self._space = clock, meter, space
        self._arena = arena_for(graph.device)
        self._layouts = {kind: Layout() for kind in graphs}
        self._kinds = [EAGER, *graphs]
        self.times: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        self.waits: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        self.peaks = dict.fromkeys(self._kinds, 0)
        """The most bytes above the residents."""

    def round(self, number: int, *, counts: bool) -> None:
        """Every kind once; which one begins changes from round to round."""
        first = number % len(self._kinds)
        for kind in self._kinds[first:] + self._kinds[:first]:
            self._optimizer.zero_grad(set_to_none=True)
            if self._space is not None:
                self._space.reset_waited()
            with no_collection():
                self._meter.start()
                self._clock.start()
                self._run(kind)
                time, peak = self._clock.stop(), self._meter.stop().peak
            if counts:
                self.times[kind].append(time)
                waited = Waited() if self._space is None else self._space.waited
                self.waits[kind].append(1000 * (waited.settle_s + waited.arrive_s))
                self.peaks[kind] = max(self.peaks[kind], peak)

    def _run(self, kind: str) -> None:
        if kind == EAGER:
            result = self._eager_loss()
            (result[0] if isinstance(result, tuple) else result).backward()
            self._optimizer.step()
            return
        usual = bool(self._optimizer.state) or not self._graphs[kind].has_state
        with nullcontext() if self._arena is None else self._arena.step(self._layouts[kind], usual=usual):
            self._graphs[kind].run(self._batch, Ledger(self._optimizer, space=self._space))


def _op_times(
    graphs: dict[str, StepGraph],
    captured: StepGraph,
    clock: Clock,
    meter: Meter,
    space: SwapSpace | None,
    runs: int,
    say: Say,
) -> dict[str, OpTimes]:
    """Op-by-op runs of every graph, in turn; of each op the median counts."""
    batch, optimizer = captured.form.tensors(captured.example), captured.optimizer
    assert optimizer is not None
    times: dict[str, list[list[float]]] = {kind: [] for kind in graphs}
    for number in range(runs):
        for kind, graph in graphs.items():
            say(f"op by op, run {number + 1} of {runs}: {kind}")
            optimizer.zero_grad(set_to_none=True)
            times[kind].append(run_op_by_op(graph, batch, clock, meter, lambda _: None, space).times)
    return {kind: by_purpose(graph, times[kind]) for kind, graph in graphs.items()}


def by_purpose(graph: StepGraph, runs: Sequence[Sequence[float]]) -> OpTimes:
    """The ops of `graph` by what they are there for; of each the median of its `runs` counts. Waits do not: op by op
    there is more time for copies than in a real step."""
    sums: dict[str, float] = {}
    for op, times in zip(graph.ops, zip(*runs, strict=True), strict=True):
        key = "update" if op.is_update else op.purpose.value
        sums[key] = sums.get(key, 0.0) + median(times)
    return OpTimes(
        program=sums.get(Purpose.PROGRAM, 0.0),
        update=sums.get("update", 0.0),
        recompute=sums.get(Purpose.RECOMPUTE, 0.0),
        pack=sums.get(Purpose.PACK, 0.0),
        unpack=sums.get(Purpose.UNPACK, 0.0),
        state=sums.get(Purpose.STATE, 0.0),
        swap=sums.get(Purpose.OFFLOAD, 0.0) + sums.get(Purpose.PREFETCH, 0.0),
    )
