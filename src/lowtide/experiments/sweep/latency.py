"""latency_vs_batch_size.png: the time of a step without and with a plan, and the extra time with where it goes."""

from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lowtide.experiments.sweep.peaks import head_lines
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.reporting.bars import nothing_to_show
from lowtide.reporting.style import FAINT, INK, LIMIT_COLOUR, WITH, WITHOUT, framed, shorten
from lowtide.units import format_ms

_PARTS = {
    "recompute": ("recomputing", "#E69F00"),
    "packing": ("packing, unpacking", "#CC79A7"),
    "program": ("same ops, other order", "#56B4E9"),
    "update": ("optimizer in parts", "#009E73"),
    "other": ("the rest, noise", "#C4C4C4"),
}
_STEP = 0.115
"""The width of a part's bar, in batch sizes; then come the measured dot and the predicted one."""
_MEASURED, _PREDICTED = 0.24, 0.37
_NAMED = 0.5
"""Per cent from which a part's figure is written on it."""


def draw_latency(found: Sweep, path: Path) -> None:
    """Above: the lines, with all rounds as their spread. Below: the overhead as stairs that lead to the dot."""
    rounds = max((len(pair.ratios) for pair in found.pairs), default=0)
    lines = head_lines(
        found,
        f"points: medians of {rounds} rounds after the warm-up, bars: all rounds; "
        "with and without take turns step by step"
        + ("" if all(pair.planned.turns.value.startswith("step") for pair in found.pairs) else ", where both fit"),
    )
    with framed(path, f"{shorten(found.model, 40)}: step time against batch size", lines, (12.5, 8.2)) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.15])
        _draw_times(above, found)
        _draw_overheads(below, found)
        below.set_xticks(range(len(found.pairs)), [str(pair.batch_size) for pair in found.pairs])
        below.set_xlim(-0.5, len(found.pairs) - 0.5)
        below.set_xlabel("batch size")


def _draw_times(axes: Axes, found: Sweep) -> None:
    axes.set_title("Time of a training step")
    shown = False
    for label, colour, shift, times in (
        ("without a plan (eager)", WITHOUT, -0.03, [pair.plain.ms for pair in found.pairs]),
        ("with a plan", WITH, 0.03, [pair.planned.ms for pair in found.pairs]),
    ):
        known = [(place + shift, ms) for place, ms in enumerate(times) if ms]
        if known:
            shown = True
            middle = [median(ms) for _, ms in known]
            low = [median(ms) - min(ms) for _, ms in known]
            high = [max(ms) - median(ms) for _, ms in known]
            places = [place for place, _ in known]
            axes.errorbar(places, middle, [low, high], color=colour, marker="o", capsize=4, linewidth=1.6, label=label)
    for place, pair in enumerate(found.pairs):
        if pair.overhead is not None:
            most = max(*pair.planned.ms, *pair.plain.ms)
            at = (place, most)
            said = f"{pair.overhead:+.0%}"
            axes.annotate(said, at, xytext=(0, 7), textcoords="offset points", ha="center", weight="bold", color=INK)
    if not shown:
        nothing_to_show(axes, "no step was measured")
        return
    _scale_times(axes, found)
    _name_failures(axes, found)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)


def _scale_times(axes: Axes, found: Sweep) -> None:
    """From zero; logarithmic where the times are too far apart for that."""
    times = [ms for pair in found.pairs for case in (pair.plain, pair.planned) for ms in case.ms]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: format_ms(ms) if ms else "0"))
    if max(times) < 5 * min(times):
        axes.set_ylim(0, 1.15 * max(times))
        return
    axes.set_yscale("log")
    axes.set_ylabel("logarithmic")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: format_ms(ms)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0.7 * min(times), 1.6 * max(times))


def _name_failures(axes: Axes, found: Sweep) -> None:
    """What happened stands where a point is missing."""
    for place, pair in enumerate(found.pairs):
        for case, colour, shift in ((pair.plain, WITHOUT, -0.05), (pair.planned, WITH, 0.05)):
            if not case.ms:
                axes.text(
                    place + shift, 0.03, case.outcome.value, color=colour, rotation=90, ha="center", va="bottom",
                    transform=axes.get_xaxis_transform(), size=9,
                )  # fmt: skip


def _draw_overheads(axes: Axes, found: Sweep) -> None:
    axes.set_title("Extra time: from eager, part by part, to what was measured")
    measured = [(place, pair) for place, pair in enumerate(found.pairs) if pair.ratios]
    if not measured:
        nothing_to_show(axes, "with and without a plan were never both measured")
        return
    levels = [level for place, pair in measured for level in _draw_parts(axes, place, pair)]
    places = [place + _MEASURED for place, _ in measured]
    middle = [100 * median(pair.ratios) for _, pair in measured]
    low = [100 * (median(pair.ratios) - min(pair.ratios)) for _, pair in measured]
    high = [100 * (max(pair.ratios) - median(pair.ratios)) for _, pair in measured]
    label = "measured against eager, all rounds"
    axes.errorbar(places, middle, [low, high], color=INK, fmt="o", capsize=4, label=label, zorder=4)
    for label, colour, marker, name in (
        ("predicted", WITH, "x", "predicted_overhead"),
        ("bound: no schedule is below", LIMIT_COLOUR, "_", "bound"),
    ):
        values = [
            (place + _PREDICTED, 100 * getattr(pair.planned.plan.figures, name))
            for place, pair in measured
            if pair.planned.plan is not None
        ]
        axes.plot(*zip(*values, strict=True), color=colour, marker=marker, linestyle="", markersize=8, label=label)
    for place, _ in measured[1:]:
        axes.axvline(place - 0.5, color="#E6E6E6", linewidth=0.8)
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.set_ylabel("% of the step without a plan")
    levels += [100 * ratio for _, pair in measured for ratio in pair.ratios]
    room = 0.09 * (max(0.0, *levels) - min(0.0, *levels))
    axes.set_ylim(min(0.0, *levels) - room, max(0.0, *levels) + room)
    axes.grid(visible=False, axis="x")
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    last = once.popitem()
    once = dict([last, *once.items()])  # the dot is what the rest leads to
    axes.legend(once.values(), once.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_parts(axes: Axes, place: int, pair: Pair) -> list[float]:
    """A staircase: each part starts where the one before ended, up or down; the last ends at the difference.

    Returns where each of them ended.
    """
    parts = pair.accounting
    if parts is None:
        return []
    sizes = {
        "recompute": parts.recompute,
        "packing": parts.pack + parts.unpack + parts.state,
        "program": parts.program,
        "update": parts.update,
        "other": parts.other,
    }
    level, levels = 0.0, []
    for number, (name, (label, colour)) in enumerate(_PARTS.items()):
        share = 100 * sizes[name] / median(pair.plain.ms)
        left = place - 0.42 + _STEP * number
        axes.bar(left, share, 0.9 * _STEP, bottom=level, align="edge", color=colour, label=label)
        if abs(share) >= _NAMED:
            at, up = (left + 0.45 * _STEP, level + share), share > 0
            beyond, side = (0, 2 if up else -2), "bottom" if up else "top"
            axes.annotate(f"{share:+.0f}", at, beyond, textcoords="offset points", ha="center", va=side, size=8)
        level += share
        levels.append(level)
        end = left + (2 if number < len(_PARTS) - 1 else 1.6) * _STEP
        axes.plot([left, end], [level, level], color=FAINT, linewidth=0.7, zorder=3)
    return levels
