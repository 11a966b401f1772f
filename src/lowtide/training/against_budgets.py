"""Measures planned steps against eager and captured ones: one profile, all budgets in turn, in one run."""

from collections.abc import Callable, Sequence
from math import ceil
from statistics import median
from typing import Any

from lowtide.device.clock import Clock, clock_for
from lowtide.device.meter import Meter, meter_for
from lowtide.graph.step_graph import StepGraph
from lowtide.graph.update import Ledger
from lowtide.planning.policies import BudgetInfeasible
from lowtide.profiling.profile import profile
from lowtide.profiling.runs import no_collection, run_op_by_op
from lowtide.profiling.untouched import untouched
from lowtide.records.budgets import BudgetRow, Budgets, OpTimes
from lowtide.records.profile import Profile
from lowtide.records.words import Purpose
from lowtide.training.planned import Planned, Variant, apply_plan, batch_lines, make_plan

Say = Callable[[str], None]
Steps = dict[int, Planned]
"""The planned steps, by the number of their budget."""


def against_budgets(
    graph: StepGraph,
    eager_loss: Callable[[], Any],
    left: Sequence[float],
    *,
    name: str,
    policy: str = "optimal",
    rounds: int = 5,
    warmup: int = 1,
    op_runs: int = 3,
    time_limit: float,
    say: Say = lambda _: None,
) -> Budgets:
    """Plan `graph` for each share in `left` of the bytes above its residents, and measure all of it in turn.

    A round runs the eager step, the captured step and every planned step once, and each round begins with another.
    Parameters, buffers, optimizer and random generators are afterwards as they were before.
    """
    measured = profile(graph, runs=3, progress=lambda done, total, what: say(f"profile, {what}, {done} of {total}"))
    unplanned = max(measured.peak_B, measured.step_peak_B)
    budgets = [measured.resident_B + ceil(share * (unplanned - measured.resident_B)) for share in left]
    steps, failures = _plan(graph, measured, budgets, policy, time_limit, say)
    clock, meter = clock_for(graph.device), meter_for(graph.device)
    graphs = {"captured": graph} | {f"budget {number}": step.graph for number, step in steps.items()}
    race = _Race(graph, eager_loss, graphs, clock, meter)
    with untouched(graph):
        for number in range(warmup + rounds):
            say(f"round {number + 1} of {warmup + rounds}")
            race.round(number, counts=number >= warmup)
        ops = _op_times(graphs, graph, clock, meter, op_runs, say)
    rows = []
    for number, (share, budget) in enumerate(zip(left, budgets, strict=True)):
        if number in failures:
            rows.append(BudgetRow(share, budget, failures[number], None, None, None, None, None, (), None))
            continue
        plan, key = steps[number].plan, f"budget {number}"
        assert plan is not None
        rows.append(
            BudgetRow(
                left=share,
                budget_B=budget,
                failure=None,
                predicted_peak_B=plan.peak,
                measured_peak_B=measured.resident_B + race.peaks[key],
                predicted_overhead=plan.overhead,
                bound=plan.bound,
                planning_s=plan.seconds,
                ms=tuple(race.times[key]),
                ops=ops[key],
            )
        )
    return Budgets(
        model=name,
        batch=batch_lines(graph.form),
        optimizer=measured.optimizer,
        device=measured.device,
        torch=measured.torch,
        threads=measured.threads,
        memory_source=meter.name,
        policy=policy,
        warmup=warmup,
        resident_B=measured.resident_B,
        unplanned_peak_B=unplanned,
        eager_ms=tuple(race.times["eager"]),
        eager_peak_B=measured.resident_B + race.peaks["eager"],
        captured_ms=tuple(race.times["captured"]),
        captured_peak_B=measured.resident_B + race.peaks["captured"],
        captured_ops=ops["captured"],
        rows=tuple(rows),
    )


def _plan(
    graph: StepGraph, measured: Profile, budgets: Sequence[int], policy: str, time_limit: float, say: Say
) -> tuple[Steps, dict[int, str]]:
    """A planned step for every budget that can be met, and for the others why not."""
    steps: Steps = {}
    failures: dict[int, str] = {}
    for number, budget in enumerate(budgets):
        stage = f"plan {number + 1} of {len(budgets)}"

        def tell(what: str, stage: str = stage) -> None:
            say(f"{stage}, {what}")

        try:
            _, plan = make_plan(Variant(graph, measured), None, budget, name=policy, time_limit=time_limit, say=tell)
        except BudgetInfeasible as infeasible:
            failures[number] = str(infeasible)
            continue
        steps[number] = apply_plan(graph, plan)
    return steps, failures


class _Race:
    """Kinds of step that take turns."""

    def __init__(
        self,
        graph: StepGraph,
        eager_loss: Callable[[], Any],
        graphs: dict[str, StepGraph],
        clock: Clock,
        meter: Meter,
    ) -> None:
        self._optimizer = graph.optimizer
        self._eager_loss = eager_loss
        self._graphs = graphs
        self._batch = graph.form.tensors(graph.example)
        self._clock, self._meter = clock, meter
        self._kinds = ["eager", *graphs]
        self.times: dict[str, list[float]] = {kind: [] for kind in self._kinds}
        self.peaks = dict.fromkeys(self._kinds, 0)
        """The most bytes above the residents."""

    def round(self, number: int, *, counts: bool) -> None:
        """Every kind once; which one begins changes from round to round."""
        first = number % len(self._kinds)
        for kind in self._kinds[first:] + self._kinds[:first]:
            self._optimizer.zero_grad(set_to_none=True)
            with no_collection():
                self._meter.start()
                self._clock.start()
                self._run(kind)
                time, peak = self._clock.stop(), self._meter.stop().peak
            if counts:
                self.times[kind].append(time)
                self.peaks[kind] = max(self.peaks[kind], peak)

    def _run(self, kind: str) -> None:
        if kind == "eager":
            result = self._eager_loss()
            (result[0] if isinstance(result, tuple) else result).backward()
            self._optimizer.step()
        else:
            self._graphs[kind].run(self._batch, Ledger(self._optimizer))


def _op_times(
    graphs: dict[str, StepGraph], captured: StepGraph, clock: Clock, meter: Meter, runs: int, say: Say
) -> dict[str, OpTimes]:
    """Op-by-op runs of every graph, in turn; of each op the median counts."""
    batch = captured.form.tensors(captured.example)
    times: dict[str, list[list[float]]] = {kind: [] for kind in graphs}
    for number in range(runs):
        for kind, graph in graphs.items():
            say(f"op by op, run {number + 1} of {runs}: {kind}")
            captured.optimizer.zero_grad(set_to_none=True)
            times[kind].append(run_op_by_op(graph, batch, clock, meter, lambda _: None).times)
    return {kind: by_purpose(graph, times[kind]) for kind, graph in graphs.items()}


def by_purpose(graph: StepGraph, runs: Sequence[Sequence[float]]) -> OpTimes:
    """The ops of `graph` by what they are there for; of each the median of its `runs` counts."""
    sums: dict[str, float] = {}
    for op, times in zip(graph.ops, zip(*runs, strict=True), strict=True):
        key = "update" if op.is_update else op.purpose.value
        sums[key] = sums.get(key, 0.0) + median(times)
    return OpTimes(
        update=sums.pop("update", 0.0), **{purpose.value: sums.pop(purpose.value, 0.0) for purpose in Purpose}
    )
