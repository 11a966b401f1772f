"""What one would not have guessed, with the figures of these records; why it is so stands in the template."""

from collections.abc import Iterator
from statistics import median

from lowtide.experiments.largest.record import Largest
from lowtide.experiments.op_times import Accounting
from lowtide.experiments.policies.record import Policies, PolicyRow
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.pages.analysis.cells import change, plain
from lowtide.units import format_bytes


def batch_surprise(found: Sweep) -> Iterator[str]:
    """How the price of the plan changes from the smallest batch to the largest."""
    measured = [pair for pair in found.pairs if pair.overhead is not None]
    if len(measured) > 1:
        first, last = measured[0], measured[-1]
        yield (
            f"{plain(found.model)}: {change(first.overhead)} time at batch size {first.batch_size}, "
            f"{change(last.overhead)} at {last.batch_size}"
        )
    for pair in measured:
        if max(pair.ratios) < 0 and pair.accounting is not None:
            yield f"{plain(found.model)} at batch size {pair.batch_size}: {_faster(pair, pair.accounting)}"


def _faster(pair: Pair, parts: Accounting) -> str:
    recompute, same, other = (
        change(part / median(pair.plain.ms)) for part in (parts.recompute, parts.program, parts.other)
    )
    return (
        f"every round was faster with the plan than without. Recomputing takes {recompute} of the eager step, but the "
        f"same ops take {same} in the other order, and {other} are not explained. The suspect is what this machine "
        "needs to provide fresh memory, so do not count on it elsewhere"
    )


def floor_surprise(found: Policies) -> Iterator[str]:
    """What the last bytes cost, and where another policy is furthest behind."""
    best = [row for row in found.of("optimal") if row.predicted_overhead is not None]
    if len(best) > 1:
        *_, before, last = best
        yield (
            f"{plain(found.model)}: from {format_bytes(before.budget_B)} to the floor at {format_bytes(last.budget_B)} "
            f"the price goes from {change(before.predicted_overhead)} to {change(last.predicted_overhead)} (predicted)"
        )
    behind = [pair for row in best for pair in _others(found, row)]
    if behind:
        times, row = max(behind, key=lambda pair: pair[0])
        yield (
            f"{plain(found.model)} in {format_bytes(row.budget_B)}: {row.policy} pays {times:.1f} times the extra time "
            f"of optimal, {change(row.predicted_overhead)} (predicted)"
        )


def _others(found: Policies, best: PolicyRow) -> Iterator[tuple[float, PolicyRow]]:
    """The other policies' plans for the same budget, with how many times the extra time they pay."""
    for row in found.rows:
        if (
            row.policy != "optimal"
            and row.budget_B == best.budget_B
            and row.predicted_overhead
            and best.predicted_overhead
        ):
            yield row.predicted_overhead / best.predicted_overhead, row


def cost_surprise(found: Policies) -> Iterator[str]:
    """By how much plans take longer than predicted."""
    rows = [row for row in found.rows if row.ms and row.step != "captured" and row.predicted_overhead is not None]
    steps = {row.step: median(found.against_captured(row)) - (row.predicted_overhead or 0.0) for row in rows}
    if steps:
        points = sorted(100 * each for each in steps.values())
        yield (
            f"{plain(found.model)}: measured less predicted is {median(points):+.1f} points in the median of "
            f"{len(points)} plans, from {points[0]:+.1f} to {points[-1]:+.1f}"
        )


def limit_surprise(found: Largest) -> Iterator[str]:
    """What eager would need for the largest batch that trains with a plan."""
    size = found.trained(planned=True)
    plans = [case.plan.figures for case in found.trials if case.settings.batch_size == size and case.plan is not None]
    if plans:
        plan = plans[-1]
        yield (
            f"{plain(found.model)} at batch size {size}: eager would need {format_bytes(plan.unplanned_peak_B)}, the "
            f"plan takes {format_bytes(plan.predicted_peak_B)} for {change(plan.predicted_overhead)} time, predicted"
        )
