"""Tables of measured figures on the terminal."""

from collections.abc import Sequence
from statistics import median

from rich.table import Table
from rich.text import Text

from lowtide.units import format_ms


def figures_table(title: Text, columns: Sequence[str]) -> Table:
    """Right-aligned columns without lines."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def ratio_cell(values: Sequence[float]) -> str:
    """The median with the lowest and the highest."""
    return f"{median(values):+.1%} ({min(values):+.1%} to {max(values):+.1%})"


def ms_cell(value: float) -> str:
    """Milliseconds, which may be negative."""
    return ("-" if value < 0 else "") + format_ms(abs(value))
