"""The figures of the README, from the records under reports/: written here, checked by a test."""

from pathlib import Path
from statistics import median

from lowtide.records.budgets import Budgets
from lowtide.records.comparison import Comparison
from lowtide.units import format_bytes

_HEAD = (
    "| | eager peak | captured peak | captured against eager, time | op times added up, against a plain run |",
    "|---|---|---|---|---|",
)


def cost_table(folder: Path) -> str:
    """The table of what a captured step costs, from the files that `make bench` wrote into `folder`."""
    rows = []
    for path in sorted(folder.glob("capture_*.json")):
        found = Comparison.load(path)
        ratios = sorted(found.ratios)
        rows.append(
            f"| {found.model} | {format_bytes(found.eager_peak_B)} "
            f"| {format_bytes(found.captured_peak_B)} ({found.captured_peak_B / found.eager_peak_B - 1:+.2%}) "
            f"| {found.overhead:+.1%} (pairs from {ratios[0] - 1:+.0%} to {ratios[-1] - 1:+.0%}) "
            f"| {found.op_sum_ms / found.plain_ms - 1:+.1%} |"
        )
    return "\n".join([*_HEAD, *rows])


_BUDGETS_HEAD = (
    "| | bytes left | budget | measured peak | time against eager | against as captured | predicted | bound |",
    "|---|---|---|---|---|---|---|---|",
)


def budgets_table(folder: Path) -> str:
    """What budgets cost, from the files that `make bench-budgets` wrote under `folder`."""
    rows = []
    for path in sorted(folder.glob("*/budgets.json")):
        found = Budgets.load(path)
        for row in found.rows:
            start = f"| {found.model} | {row.left:.0%} | {format_bytes(row.budget_B)}"
            if row.measured_peak_B is None or row.predicted_overhead is None or row.bound is None:
                rows.append(f"{start} | no plan | | | | |")
                continue
            rows.append(
                f"{start} | {format_bytes(row.measured_peak_B)} | {_spread(found.against_eager(row))} "
                f"| {_spread(found.against_captured(row))} | {row.predicted_overhead:+.1%} | {row.bound:+.1%} |"
            )
    return "\n".join([*_BUDGETS_HEAD, *rows])


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):+.1%} ({min(ratios):+.0%} to {max(ratios):+.0%})"
