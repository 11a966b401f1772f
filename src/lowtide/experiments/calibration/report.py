"""The calibration as tables."""

from rich.table import Table

from lowtide.fitting.calibration import Calibration
from lowtide.units import format_bytes, format_ms


def kinds_table(found: Calibration) -> Table:
    """By kind of op."""
    table = Table("kind of op", "ops", "measured", "by the rates", "longer by", "one op off by, corrected", box=None)
    for kind in found.kinds:
        table.add_row(
            kind.kind,
            f"{kind.ops:,}",
            format_ms(kind.measured_ms),
            format_ms(kind.estimated_ms),
            f"x {kind.times(found.start_ms):.2f}",
            f"{100 * kind.off:.0f} % (median)",
        )
    return table


def steps_table(found: Calibration) -> Table:
    """Whole steps: times corrected by the other models, and peaks."""
    table = Table("step", "measured", "by the rates", "corrected", "peak measured", "peak said", box=None)
    for step in found.steps:
        table.add_row(
            f"{step.model}, {step.batch}",
            format_ms(step.measured_ms),
            f"{format_ms(step.estimated_ms)} ({step.estimated_ms / step.measured_ms - 1:+.0%})",
            f"{format_ms(step.corrected_ms)} ({step.corrected_ms / step.measured_ms - 1:+.0%})",
            format_bytes(step.measured_B),
            f"{format_bytes(step.said_B)} ({step.said_B / step.measured_B - 1:+.2%})",
        )
    return table
