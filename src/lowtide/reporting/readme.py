"""The figures of the README, from the records under reports/: written here, checked by a test."""

from pathlib import Path

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
