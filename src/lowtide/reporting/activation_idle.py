"""profiler_plots_activation_inactive_time.png: how long each activation waits between forward and backward."""

from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import SubFigure
from matplotlib.ticker import LogLocator

from lowtide.records.profile import ActivationRecord, Profile
from lowtide.records.vocabulary import Phase
from lowtide.reporting.bars import horizontal_bars, nothing_to_show
from lowtide.reporting.style import FAINT, PHASE_COLOURS, Scale, op_label, picture, rows_of, shorten
from lowtide.units import format_bytes, format_ms

_ROWS, _LINES, _NAMED = 22, 400, 24
_FITS, _FITS_NOT = "#0072B2", "#D55E00"


def draw_activation_idle(profile: Profile, path: Path) -> None:
    """Each wait as a line in time, bytes against wait, and the waits that hold most bytes for longest."""
    with picture(path, profile, "how long activations lie idle", (15, 11.5)) as figure:
        if not profile.activations:
            nothing_to_show(figure.add_subplot(), "this step keeps no activation from forward to backward")
            return
        upper, lower = rows_of(figure, 1.05, 1.2)
        _waits(upper, profile)
        longest, against_bytes = lower.subplots(1, 2)
        _longest(longest, profile)
        _against_bytes(against_bytes, profile)


def _waits(figure: SubFigure, profile: Profile) -> None:
    """One line per activation from its last forward to its first backward use; the largest where there are too many."""
    axes = figure.add_subplot()
    shown = sorted(sorted(profile.activations, key=lambda a: -a.memory_size_B)[:_LINES], key=lambda a: a.created)
    ends = list(accumulate(op.runtime_ms for op in profile.ops))
    scale = Scale.of_ms(ends[-1])
    segments = []
    for place, a in enumerate(shown):
        start, stop = ends[a.last_fw_use], ends[a.first_bw_use] - profile.ops[a.first_bw_use].runtime_ms
        segments.append([(start / scale.factor, place), (stop / scale.factor, place)])
    sizes = [max(a.memory_size_B, 1) for a in shown]
    lines = LineCollection(
        segments,
        cmap="cividis_r",
        norm=LogNorm(min(sizes), max(max(sizes), 2 * min(sizes))),
        linewidths=max(0.8, min(14.0, 230 / len(shown))),
        capstyle="butt",
    )
    lines.set_array(sizes)
    axes.add_collection(lines)
    axes.set_xlim(0, ends[-1] / scale.factor or 1)
    axes.set_ylim(max(len(shown), 8) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    backward = next((op.rank for op in profile.ops if op.phase is Phase.BACKWARD), 0)
    if backward:
        at = ends[backward - 1] / scale.factor
        axes.axvline(at, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        colour, above = PHASE_COLOURS[Phase.BACKWARD], axes.get_xaxis_transform()
        axes.text(at, 1.01, "backward begins", transform=above, ha="center", va="bottom", color=colour, weight="bold")
    count = len(profile.activations)
    which = "Each activation" if len(shown) == count else f"The {len(shown)} largest of {count:,} activations"
    axes.set_title(f"{which}: from the last use in forward to the first use in backward", pad=20)
    axes.set_xlabel(f"time since the step began ({scale.unit}), op times added up")
    if len(shown) <= _NAMED:
        axes.set_yticks(range(len(shown)), [op_label(a.name, a.module) for a in shown], size=8.5)
    else:
        axes.set_ylabel("in the order of creation")
    bar = figure.colorbar(lines, ax=axes, pad=0.01, fraction=0.03, ticks=LogLocator(base=16))
    bar.ax.yaxis.set_major_formatter(lambda size, _: format_bytes(size))
    bar.ax.minorticks_off()
    bar.set_label("bytes")


def _longest(axes: Axes, profile: Profile) -> None:
    """Ranked by bytes times wait: a long wait of a few bytes does not matter."""
    rows = sorted(profile.activations, key=lambda a: -a.memory_size_B * a.inactive_time_ms)[:_ROWS]
    scale = Scale.of_ms(max(a.inactive_time_ms for a in rows))
    lengths = [a.inactive_time_ms / scale.factor for a in rows]
    texts = [f"{format_ms(a.inactive_time_ms)}, {format_bytes(a.memory_size_B)}" for a in rows]
    colours = [_FITS if _swap_fits(a) else _FITS_NOT for a in rows]
    horizontal_bars(axes, [op_label(a.name, a.module) for a in rows], [(lengths, colours)], texts)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.12)
    axes.set_title(f"Idle time of the {len(rows)} with the most bytes x time")
    axes.set_xlabel(scale.unit)


def _against_bytes(axes: Axes, profile: Profile) -> None:
    scale = Scale.of_ms(max(a.inactive_time_ms for a in profile.activations))
    tier = shorten(profile.transfer_tier, 30)
    for colour, fits, text in ((_FITS, True, "fits"), (_FITS_NOT, False, "does not fit")):
        group = [a for a in profile.activations if _swap_fits(a) is fits]
        size = format_bytes(sum(a.memory_size_B for a in group))
        axes.scatter(
            [a.inactive_time_ms / scale.factor for a in group],
            [max(a.memory_size_B, 1) for a in group],
            c=colour,
            s=26,
            alpha=0.55,
            linewidths=0,
            label=f"swap out and in ({tier}) {text}: {len(group)}, {size}",
        )
    axes.set_yscale("log", base=16)
    axes.yaxis.set_major_formatter(lambda size, _: format_bytes(size))
    axes.minorticks_off()
    axes.set_title("Bytes against idle time")
    axes.set_xlabel(f"idle time ({scale.unit})")
    axes.set_ylabel("bytes")
    axes.legend(loc="best", frameon=True)


def _swap_fits(a: ActivationRecord) -> bool:
    """Out and in again while nobody needs it."""
    return 2 * a.swap_time_ms <= a.inactive_time_ms
