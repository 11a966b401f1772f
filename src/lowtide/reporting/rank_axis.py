"""The axis of execution ranks: thousands of ops in a readable number of bins, phases marked."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from lowtide.records.profile import OpRecord, Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.style import FAINT, INK, PHASE_COLOURS, Scale, shorten
from lowtide.units import format_bytes

_MOST_SEPARATORS = 6


def bins(count: int, most: int) -> list[range]:
    """`count` ranks in at most `most` bins of consecutive ranks, none empty."""
    parts = min(count, most)
    return [range(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


def edges(spans: Sequence[range]) -> list[float]:
    """The borders of the bins; the bar of rank r reaches from r - 0.5 to r + 0.5."""
    return [*(span.start - 0.5 for span in spans), spans[-1].stop - 0.5]


def bar_widths(spans: Sequence[range]) -> list[int]:
    """The widths of the bins."""
    return [len(span) for span in spans]


def phase_of_bin(ops: Sequence[OpRecord], span: range) -> Phase:
    """The phase that most of a bin's time belongs to."""
    time = {phase: sum(ops[r].runtime_ms for r in span if ops[r].phase is phase) for phase in Phase}
    return max(time, key=lambda phase: time[phase])


def mark_phases(axes: Axes, profile: Profile) -> None:
    """A strip of phases under the axis, and a line and a name where each begins."""
    runs: list[tuple[Phase, int, int]] = []
    for phase, group in groupby(profile.ops, key=lambda op: op.phase):
        ranks = [op.rank for op in group]
        runs.append((phase, ranks[0], ranks[-1] + 1))
    count = len(profile.ops)
    below = axes.get_xaxis_transform()
    for phase, start, stop in runs:
        axes.fill_between(
            [start - 0.5, stop - 0.5], -0.022, 0, color=PHASE_COLOURS[phase], transform=below, clip_on=False, zorder=5
        )
    axes.tick_params(axis="x", pad=8)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_xlabel("execution rank (op)")
    if len(runs) > _MOST_SEPARATORS:
        axes.legend(handles=phase_patches(profile), loc="upper left", ncols=3)
        return
    for phase, start, stop in runs:
        if start:
            axes.axvline(start - 0.5, color=FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=4)
        wide = (stop - start) / count > 0.065
        axes.text(
            (start + stop - 1) / 2 if wide else stop - 0.5 + 0.006 * count,
            1.012 if wide else 0.98,
            phase.value,
            transform=below,
            ha="center" if wide else "left",
            va="bottom" if wide else "top",
            rotation=0 if wide else 270,
            color=PHASE_COLOURS[phase],
            weight="bold",
            size=10,
        )


def phase_patches(profile: Profile) -> list[Patch]:
    """Legend entries for the phases that the step has."""
    there = {op.phase for op in profile.ops}
    return [Patch(color=PHASE_COLOURS[phase], label=phase.value) for phase in Phase if phase in there]


def point_at_peak(axes: Axes, profile: Profile, scale: Scale) -> None:
    """An arrow to the peak, with its bytes, op, module and line in the room above the curve."""
    op, count = profile.ops[profile.peak_rank], len(profile.ops)
    right = op.rank > count / 2
    text = f"peak {format_bytes(profile.peak_B)} at rank {op.rank}: {shorten(op.name, 40)}"
    where = [f"module {shorten(op.module, 52)}"] if op.module else []
    where += [shorten(op.source, 60)] if op.source else []
    axes.annotate(
        "\n".join([text, *where]),
        xy=(op.rank, profile.peak_B / scale.factor),
        xytext=(op.rank + (-0.03 if right else 0.03) * count, 0.975),
        textcoords=axes.get_xaxis_transform(),
        ha="right" if right else "left",
        va="top",
        color=INK,
        size=9.5,
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1, "shrinkB": 1, "relpos": (float(right), 0.0)},
        bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": "#BBBBBB", "linewidth": 0.8},
        zorder=8,
    )
