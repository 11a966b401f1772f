"""Captured steps against eager ones, as a table."""

from rich.table import Table

from lowtide.experiments.capture.record import Comparison
from lowtide.units import format_bytes, format_ms


def capture_table(found: Comparison) -> Table:
    """Peak and time of both, then of the captured step run plainly and op by op."""
    low, *_, high = sorted([*found.ratios, *found.ratios])
    table = Table("", "eager", "captured", "difference", title=f"{found.model}, {found.optimizer}", box=None)
    peak = found.captured_peak_B / found.eager_peak_B - 1
    table.add_row("peak", format_bytes(found.eager_peak_B), format_bytes(found.captured_peak_B), f"{peak:+.3%}")
    eager, ours = sorted(found.eager_ms), sorted(found.captured_ms)
    table.add_row(
        "step",
        format_ms(eager[len(eager) // 2]),
        format_ms(ours[len(ours) // 2]),
        f"{found.overhead:+.1%} (median of {len(ours)} neighbouring pairs, {low - 1:+.1%} to {high - 1:+.1%})",
    )
    table.add_row("", "plain run", "op by op", "")
    table.add_row(
        "peak", format_bytes(found.captured_peak_B), format_bytes(found.op_peak_B),
        f"{found.op_peak_B / found.captured_peak_B - 1:+.3%}",
    )  # fmt: skip
    table.add_row(
        "step", format_ms(found.plain_ms), format_ms(found.op_sum_ms), f"{found.op_sum_ms / found.plain_ms - 1:+.1%}"
    )
    return table
