"""What policies make of the same step: each plans it for budgets from slack to the floor, and all are measured."""

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.experiments.case import Activations
from lowtide.experiments.measure_plans import (
    CAPTURED,
    EAGER,
    Measured,
    Say,
    WantedPlan,
    measure_plans,
    measure_profile,
    unplanned_peak,
)
from lowtide.experiments.policies.record import Policies, PolicyRow
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.planning.policies import BudgetInfeasible
from lowtide.records.profile import Profile
from lowtide.records.step_plan import StepPlan
from lowtide.training.planned import Variant, make_plan

CLOSER = 1.5
"""Budgets lie at powers of this of even shares of the way up from the floor."""


def compare_policies(
    graph: StepGraph,
    eager_loss: Callable[[], Any],
    policies: Sequence[str],
    *,
    name: str,
    points: int,
    rounds: int = 3,
    warmup: int = 1,
    op_runs: int = 1,
    slowest: float = 10.0,
    time_limit: float,
    say: Say = lambda _: None,
) -> tuple[Policies, StepPlan | None]:
    """Every policy at `points` budgets from the unplanned peak to the least that `optimal` reaches.

    They lie closer together towards the floor, where plans differ most.
    Also returns the tightest plan of the last policy that rewrote anything, which explains itself.
    """
    measured = measure_profile(graph, say)
    unplanned = unplanned_peak(measured)
    floor = _floor(graph, measured, time_limit, say)
    budgets = [floor + round((unplanned - floor) * (k / (points - 1)) ** CLOSER) for k in reversed(range(points))]
    asked = [WantedPlan(policy, budget) for policy in policies for budget in budgets]
    found = measure_plans(
        graph,
        measured,
        eager_loss,
        asked,
        rounds=rounds,
        warmup=warmup,
        op_runs=op_runs,
        time_limit=time_limit,
        say=say,
        slowest=slowest,
    )
    record = Policies(
        **found.shared(name, graph.form.lines, warmup),
        floor_B=floor,
        eager_peak_B=found.peaks[EAGER],
        captured_peak_B=found.peaks[CAPTURED],
        rows=tuple(_row(found, number, wanted) for number, wanted in enumerate(asked)),
    )
    rewritten = [plan for plan in found.plans if not isinstance(plan, str) and plan.rewritten]
    return record, rewritten[-1] if rewritten else None


def _floor(graph: StepGraph, measured: Profile, time_limit: float, say: Say) -> int:
    """The least peak that `optimal` reaches: what it answers to a budget that nothing can meet."""
    try:
        _, plan = make_plan(
            Variant(graph, measured),
            None,
            measured.resident_B,
            name="optimal",
            time_limit=time_limit,
            say=lambda what: say(f"the floor, {what}"),
        )
    except BudgetInfeasible as infeasible:
        return infeasible.floor
    return Forecast(plan).peak


def _row(found: Measured, number: int, wanted: WantedPlan) -> PolicyRow:
    plan, key = found.plans[number], found.keys[number]
    if isinstance(plan, str):
        return PolicyRow(wanted.policy, wanted.budget, plan, "", None, None, None, None, None, None, (), None)
    forecast = Forecast(plan)
    return PolicyRow(
        policy=wanted.policy,
        budget_B=wanted.budget,
        failure=None,
        step=key,
        predicted_peak_B=forecast.peak,
        measured_peak_B=found.peaks.get(key),
        predicted_overhead=forecast.overhead,
        bound=plan.bound,
        planning_s=plan.seconds,
        activations=Activations.of(plan),
        ms=found.ms.get(key, ()),
        ops=found.ops.get(key),
    )
