"""Recompute only, swap only, and both, at several budgets, beside eager and captured steps, in one run."""

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.experiments.measure_plans import Measured, Say, WantedPlan, budgets_left, measure_plans, measure_profile
from lowtide.experiments.swap.record import Method, SwapComparison, SwapRow
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.training.swap_use import SwapUse


def compare_swapping(
    graph: StepGraph,
    eager_loss: Callable[[], Any],
    left: Sequence[float],
    swap: SwapUse,
    *,
    name: str,
    rounds: int = 5,
    warmup: int = 1,
    op_runs: int = 2,
    time_limit: float,
    say: Say = lambda _: None,
) -> SwapComparison:
    """Plan `graph` by every method for each share in `left` of the bytes above its residents; measure all in turn."""
    measured = measure_profile(graph, say)
    say("measure swapping")
    swap.open(graph.device)
    measured = swap.measured(measured)
    budgets = zip(left, budgets_left(measured, left), strict=True)
    cases = [(share, budget, way) for share, budget in budgets for way in Method]
    asked = [
        WantedPlan("optimal", budget, swap=way is not Method.RECOMPUTE, recompute=way is not Method.SWAP)
        for _, budget, way in cases
    ]
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
        swap=swap,
    )
    return SwapComparison(
        **found.shared(name, graph.form.lines, warmup),
        transfer=measured.transfer,
        transfer_tier=measured.transfer_tier,
        transfer_drag=measured.transfer_drag,
        rows=tuple(_row(found, number, *case) for number, case in enumerate(cases)),
    )


def _row(found: Measured, number: int, share: float, budget: int, way: Method) -> SwapRow:
    plan, key = found.plans[number], found.keys[number]
    if isinstance(plan, str):
        return SwapRow(share, budget, way, plan, None, None, (), (), None)
    return SwapRow(
        left=share,
        budget_B=budget,
        way=way,
        failure=None,
        plan=Forecast(plan).figures,
        measured_peak_B=found.peaks[key],
        ms=found.ms[key],
        wait_ms=found.waits[key],
        ops=found.ops[key],
    )
