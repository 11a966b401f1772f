"""Names and numbers as cells of a Markdown table. Names come from models: they are shown, never interpreted."""

from collections.abc import Sequence
from statistics import median

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>()#+!|~&"})


def plain(text: str) -> str:
    """Text in which no character means anything to Markdown or HTML."""
    return " ".join(text.split()).translate(_SPECIAL)


def share(value: float | None) -> str:
    """A share in per cent; a dash where there is none."""
    return "-" if value is None else f"{value:.1%}"


def change(value: float | None) -> str:
    """A share with its sign; a dash where there is none."""
    return "-" if value is None else f"{value:+.1%}"


def spread(ratios: Sequence[float]) -> str:
    """The median with the lowest and the highest; a dash where there is none."""
    return f"{median(ratios):+.1%} ({min(ratios):+.0%} to {max(ratios):+.0%})" if ratios else "-"
