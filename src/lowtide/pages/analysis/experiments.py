"""The experiments' records as rows of the analysis."""

from collections.abc import Iterator, Sequence
from statistics import median

from lowtide.experiments.case import Case
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.policies.record import Policies
from lowtide.experiments.predictions.record import Prediction
from lowtide.experiments.predictions.report import worst_peaks, worst_times
from lowtide.experiments.swap.record import SwapComparison
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.pages.analysis.cells import change, plain, share, spread
from lowtide.pages.analysis.profiles import Row
from lowtide.units import format_bytes, format_ms


def peak_rows(sweep: Sweep) -> Iterator[Row]:
    """Batch size, peaks, reduction, what became of the activations, are the losses equal."""
    for pair in sweep.pairs:
        plan = pair.planned.plan
        fates: Row = ("-",) * 4
        if plan is not None:
            kinds = plan.activations
            fates = tuple(str(some.count) for some in (kinds.kept, kinds.recomputed, kinds.packed, kinds.swapped))
        equal = "-" if pair.equal is None else "yes" if pair.equal else "NO"
        peaks = (_peak(pair.plain), _peak(pair.planned))
        yield (str(pair.batch_size), *peaks, share(pair.reduction), *fates, equal)


def latency_rows(sweep: Sweep) -> Iterator[Row]:
    """Batch size, step times, overhead with its spread, predicted, bound, and the parts of the accounting."""
    for pair in sweep.pairs:
        times = tuple(format_ms(median(case.ms)) if case.ms else "-" for case in (pair.plain, pair.planned))
        plan = pair.planned.plan
        predicted = (None, None) if plan is None else (plan.figures.predicted_overhead, plan.figures.bound)
        cells = (spread(pair.ratios), *(change(value) for value in predicted))
        yield (str(pair.batch_size), *times, *cells, *_accounting(pair), pair.planned.turns.value)


def _accounting(pair: Pair) -> Row:
    parts = pair.accounting
    if parts is None:
        return ("-",) * 4
    base = median(pair.plain.ms)
    packing = parts.pack + parts.unpack + parts.state
    return tuple(change(ms / base) for ms in (parts.recompute, packing, parts.program + parts.update, parts.other))


def swap_rows(swaps: SwapComparison) -> Iterator[Row]:
    """Bytes left, way, measured peak, overheads, the accounting of swaps, how much was swapped."""
    for row in swaps.rows:
        if row.plan is None:
            yield (f"{row.left:.0%}", row.way.value, "no plan", *("-",) * 7)
            continue
        parts, base = swaps.accounting(row, row.wait_ms), median(swaps.captured_ms)
        costs = (parts.recompute, parts.pack + parts.unpack + parts.state, parts.swap, parts.swap_wait)
        yield (
            *(f"{row.left:.0%}", row.way.value, format_bytes(row.measured_peak_B or 0)),
            *(spread(swaps.against_captured(row)), change(row.plan.predicted_overhead)),
            *(change(ms / base) for ms in costs),
            format_bytes(row.plan.swapped.bytes),
        )


def failure_lines(sweep: Sweep) -> Iterator[str]:
    """What did not train, and why."""
    for pair in sweep.pairs:
        for word, case in (("with a plan", pair.planned), ("without a plan", pair.plain)):
            if case.failure is not None:
                yield f"Batch size {pair.batch_size}, {word}: {plain(case.failure)}"


def _peak(case: Case) -> str:
    return case.outcome.value if case.peak_B is None else format_bytes(case.peak_B)


def policy_rows(found: Policies) -> Iterator[Row]:
    """Policy, budget, measured peak, predicted and measured overhead, bound, activations recomputed."""
    for row in found.rows:
        start = (row.policy, format_bytes(row.budget_B))
        if row.activations is None:
            yield (*start, "no plan", *["-"] * 5)
            continue
        bound = change(row.bound) if row.policy == "optimal" else "-"
        measured = spread(found.against_captured(row)) if row.ms else "too slow to run"
        peak = "not run" if row.measured_peak_B is None else format_bytes(row.measured_peak_B)
        fates = (str(row.activations.recomputed.count), format_bytes(row.activations.recomputed.bytes))
        yield (*start, peak, change(row.predicted_overhead), measured, bound, *fates)


def limit_row(found: Largest) -> Row:
    """Model, limit, the two batches, and the first that fails eagerly: what eager needs, what the plan takes."""
    eager, planned = (str(found.trained(planned=planned)) for planned in (False, True))
    start = (plain(found.model), format_bytes(found.memory_limit_B), eager, planned)
    there, need = found.planned_there, found.need_B
    if there is None or need is None:
        return (*start, *["-"] * 4)
    return (
        *start,
        str(there.settings.batch_size),
        f"{format_bytes(need[0])}, {need[1]}",
        _peak(there),
        share(found.reduction),
    )


def worst_rows(found: Sequence[Prediction], reports: str) -> Iterator[Row]:
    """The worst predictions of peak and time, with a link to the raw file below `reports`."""
    for what, cases in (("peak", worst_peaks(found)), ("time", worst_times(found))):
        for each in cases:
            error = each.peak_error if what == "peak" else each.time_error or 0.0
            raw = f"[{plain(each.file)}]({reports}/{each.file})"
            yield (what, f"{error:+.3%}", each.experiment, plain(each.model), plain(each.case), raw)
