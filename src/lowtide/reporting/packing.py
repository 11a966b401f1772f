"""addresses.png: where everything of a schedule lies, address against time."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lowtide.planning.addresses.blocks import WORKSPACE, blocks_of
from lowtide.planning.addresses.place import Placement, place
from lowtide.planning.lanes import clock
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import simulate
from lowtide.reporting.style import INK, LIMIT_COLOUR, WORKSPACE_COLOUR, Scale, framed, shorten
from lowtide.units import format_bytes

_LONG, _SHORT, _AGAIN = "#0072B2", "#56B4E9", "#E69F00"
_LIVES_LONG = 0.1
"""Share of the schedule's time from which a block lives long."""
_SHADES = (0.0, 0.14, 0.28, 0.42)
"""How much white is mixed into a colour: neighbours are told apart."""
_EDGE = 1 / 150
"""Of the height: a block at least so high gets an edge."""


def draw_packing(problem: Problem, order: Sequence[int], path: Path) -> Placement:
    """Every storage and workspace of `order` as a rectangle: its life from left to right, its bytes from below."""
    blocks, storages = blocks_of(problem, order)
    placement = place(blocks)
    peak = simulate(problem, order).peak
    ends = list(accumulate(clock(problem, order).ends, max))
    edges = np.array([0.0, *ends, 1.004 * ends[-1]])  # what is kept lives on behind the last step
    time, bytes_ = Scale.of_ms(edges[-1]), Scale.of_bytes(placement.extent)
    lines = (
        f"{len(blocks):,} storages and workspaces of {len(order):,} runs of ops, each where it lies while it lives; "
        "a workspace lives for one op",
        f"{format_bytes(placement.extent)} for {format_bytes(placement.load)} in use at once, {placement.waste:+.2%}; "
        f"with the {format_bytes(problem.resident_bytes)} that are always there the peak is {format_bytes(peak)}",
    )
    with framed(path, f"{shorten(problem.name, 40)}: addresses over one step", lines, (12, 6.4)) as figure:
        axes = figure.add_subplot()
        axes.grid(visible=False)
        _rectangles(axes, placement, storages, edges / time.factor, bytes_)
        in_use = [live - problem.resident_bytes for live in simulate(problem, order).live]
        axes.stairs(np.array(in_use) / bytes_.factor, edges[:-1] / time.factor, baseline=None, color=INK, linewidth=0.9)
        axes.axhline(placement.extent / bytes_.factor, color=LIMIT_COLOUR, linewidth=1.2, linestyle="--")
        axes.set_xlim(0, edges[-1] / time.factor)
        axes.set_ylim(0, 1.03 * placement.extent / bytes_.factor)
        axes.set_xlabel(f"time ({time.unit})")
        axes.set_ylabel(f"address ({bytes_.unit})")
        axes.legend(handles=_legend(), loc="upper left", bbox_to_anchor=(1.0, 1.0), labelcolor=INK)
    return placement


def _rectangles(
    axes: Axes, placement: Placement, storages: Sequence[int], edges: NDArray[np.float64], bytes_: Scale
) -> None:
    blocks = placement.blocks
    seen: Counter[int] = Counter()
    corners, colours, widths = [], [], []
    for k in np.argsort(blocks.begin, kind="stable"):
        left, right = edges[blocks.begin[k]], edges[blocks.end[k]]
        low = placement.offsets[k] / bytes_.factor
        high = low + blocks.bytes[k] / bytes_.factor
        s = storages[k]
        if s == WORKSPACE:
            colour = WORKSPACE_COLOUR
        elif seen[s]:
            colour = _AGAIN
        else:
            colour = _LONG if right - left > _LIVES_LONG * edges[-1] else _SHORT
        seen[s] += s != WORKSPACE
        corners.append([(left, low), (right, low), (right, high), (left, high)])
        colours.append(_shaded(colour, _SHADES[k % len(_SHADES)]))
        widths.append(0.25 if blocks.bytes[k] > _EDGE * placement.extent else 0.0)
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=widths))


def _shaded(colour: str, white: float) -> tuple[float, ...]:
    return tuple(part + white * (1 - part) for part in to_rgb(colour))


def _legend() -> list[Patch | Line2D]:
    return [
        Patch(color=_LONG, label=f"lives for {_LIVES_LONG:.0%} of the time or more"),
        Patch(color=_SHORT, label="lives for a short time"),
        Patch(color=_AGAIN, label="made again"),
        Patch(color=WORKSPACE_COLOUR, label="workspace of an op"),
        Line2D([], [], color=INK, linewidth=0.9, label="in use"),
        Line2D([], [], color=LIMIT_COLOUR, linewidth=1.2, linestyle="--", label="the block ends here"),
    ]
