"""Horizontal bars with a label before and a number behind each."""

from collections.abc import Sequence

from matplotlib.axes import Axes


def horizontal_bars(
    axes: Axes,
    labels: Sequence[str],
    stacks: Sequence[tuple[Sequence[float], Sequence[str] | str]],
    texts: Sequence[str],
) -> None:
    """Bars from the top down; each of `stacks` is (lengths, colours), put end to end; `texts` stand behind the bars."""
    places = range(len(labels))
    reach = [0.0] * len(labels)
    for lengths, colours in stacks:
        axes.barh(places, lengths, left=reach, color=colours, height=0.74)
        reach = [left + length for left, length in zip(reach, lengths, strict=True)]
    most = max(reach, default=0.0)
    for place, end, text in zip(places, reach, texts, strict=True):
        axes.text(end + most * 0.012, place, text, va="center", ha="left", size=8.5)
    axes.set_yticks(places, labels, size=8.5)
    axes.set_ylim(max(len(labels), 8) - 0.4, -0.6)
    axes.set_xlim(0, most * 1.2 if most else 1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def nothing_to_show(axes: Axes, text: str) -> None:
    """Say why a panel is empty."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", size=11, color="#666666")
