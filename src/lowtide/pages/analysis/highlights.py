"""What stands out in the records, each in one sentence with its figures; nothing where there is no record."""

from collections.abc import Iterator, Sequence

from lowtide.experiments.largest.record import Largest
from lowtide.experiments.policies.record import Policies, PolicyRow
from lowtide.experiments.predictions.record import Prediction
from lowtide.experiments.predictions.report import worst_peaks, worst_times
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.pages.analysis.cells import change, plain, share, spread
from lowtide.units import format_bytes


def sweep_highlights(found: Sweep) -> Iterator[str]:
    """The batch size at which the plan saves most, and whether training stayed the same everywhere."""
    measured = [pair for pair in found.pairs if pair.reduction is not None and pair.overhead is not None]
    if measured:
        best = max(measured, key=_saving)
        yield (
            f"{plain(found.model)} at batch size {best.batch_size}: {share(best.reduction)} less memory, step time "
            f"{spread(best.ratios)}"
        )
        equal = [pair for pair in measured if pair.equal]
        yield f"{plain(found.model)}: all losses equal eager's at {len(equal)} of {len(measured)} batch sizes"


def _saving(pair: Pair) -> float:
    return pair.reduction or 0.0


def policy_highlights(found: Policies) -> Iterator[str]:
    """At the tightest budget that another policy than `optimal` reaches: what each of them pays."""
    rows = [row for row in found.rows if row.failure is None and row.step != "captured"]
    others = [row for row in rows if row.policy != "optimal"]
    best = {row.budget_B: row for row in rows if row.policy == "optimal"}
    shared = [row for row in others if row.budget_B in best]
    if shared:
        tight = min(row.budget_B for row in shared)
        beside = [best[tight], *(row for row in shared if row.budget_B == tight)]
        yield f"{plain(found.model)} in {format_bytes(tight)}: {'; '.join(map(_paid, beside))} (predicted)"


def _paid(row: PolicyRow) -> str:
    count = 0 if row.activations is None else row.activations.recomputed.count
    return f"{row.policy} pays {change(row.predicted_overhead)}, recomputing {count} activations"


def limit_highlights(found: Largest) -> Iterator[str]:
    """By how much the largest batch grows."""
    eager, planned = found.trained(planned=False), found.trained(planned=True)
    if eager:
        grown = f"batches of {planned} instead of {eager}, {planned / eager:.1f} times as large"
        yield f"{plain(found.model)} under {format_bytes(found.memory_limit_B)}: {grown}"


def prediction_highlights(found: Sequence[Prediction]) -> Iterator[str]:
    """The worst of each kind."""
    for each in worst_peaks(found, 1):
        yield f"No peak was predicted worse than by {each.peak_error:+.3%} ({plain(each.model)}, {plain(each.case)})"
    for each in worst_times(found, 1):
        yield f"No time was predicted worse than by {change(each.time_error)} ({plain(each.model)}, {plain(each.case)})"
