"""What budgets cost: planned steps at several budgets against eager and captured ones, in one run."""

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.experiments.budgets.record import BudgetRow, Budgets
from lowtide.experiments.measure_plans import (
    CAPTURED,
    EAGER,
    Measured,
    Say,
    WantedPlan,
    budgets_left,
    measure_plans,
    measure_profile,
)
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph


def compare_budgets(
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
    """Plan `graph` for each share in `left` of the bytes above its residents, and measure all of it in turn."""
    measured = measure_profile(graph, say)
    budgets = budgets_left(measured, left)
    asked = [WantedPlan(policy, budget) for budget in budgets]
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
    )
    rows = [
        _row(found, number, share, budget) for number, (share, budget) in enumerate(zip(left, budgets, strict=True))
    ]
    return Budgets(
        **found.shared(name, graph.form.lines, warmup),
        policy=policy,
        eager_peak_B=found.peaks[EAGER],
        captured_peak_B=found.peaks[CAPTURED],
        rows=tuple(rows),
    )


def _row(found: Measured, number: int, share: float, budget: int) -> BudgetRow:
    plan, key = found.plans[number], found.keys[number]
    if isinstance(plan, str):
        return BudgetRow(share, budget, plan, None, None, None, None, None, (), None)
    forecast = Forecast(plan)
    return BudgetRow(
        left=share,
        budget_B=budget,
        failure=None,
        predicted_peak_B=forecast.peak,
        measured_peak_B=found.peaks[key],
        predicted_overhead=forecast.overhead,
        bound=plan.bound,
        planning_s=plan.seconds,
        ms=found.ms[key],
        ops=found.ops[key],
    )
