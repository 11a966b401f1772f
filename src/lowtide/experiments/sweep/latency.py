"""latency_vs_batch_size.png: the time of a step without and with a plan, and the extra time with where it goes."""

from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lowtide.experiments.sweep.peaks import head_lines
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.reporting.bars import nothing_to_show
from lowtide.reporting.style import INK, LIMIT_COLOUR, WITH, WITHOUT, framed, shorten
from lowtide.units import format_ms

_PARTS = {
    "recompute": ("recomputing", "#E69F00"),
    "packing": ("packing, unpacking", "#CC79A7"),
    "program": ("same ops, other order", "#56B4E9"),
    "update": ("optimizer in parts", "#009E73"),
    "other": ("anything else, noise", "#C4C4C4"),
}


def draw_latency(found: Sweep, path: Path) -> None:
    """Above: the lines, with all rounds as their spread. Below: the overhead as bars of the latency accounting."""
    rounds = max((len(pair.ratios) for pair in found.pairs), default=0)
    lines = head_lines(
        found,
        f"points: medians of {rounds} rounds after the warm-up, bars: all rounds; "
        "with and without take turns step by step"
        + ("" if all(pair.planned.turns.value.startswith("step") for pair in found.pairs) else ", where both fit"),
    )
    with framed(path, f"{shorten(found.model, 40)}: step time against batch size", lines, (11, 8.2)) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.25, 1])
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
    axes.set_title("Extra time: measured, and where it goes")
    measured = [(place, pair) for place, pair in enumerate(found.pairs) if pair.ratios]
    if not measured:
        nothing_to_show(axes, "with and without a plan were never both measured")
        return
    _draw_parts(axes, measured)
    places = [place - 0.24 for place, _ in measured]
    middle = [100 * median(pair.ratios) for _, pair in measured]
    low = [100 * (median(pair.ratios) - min(pair.ratios)) for _, pair in measured]
    high = [100 * (max(pair.ratios) - median(pair.ratios)) for _, pair in measured]
    axes.errorbar(places, middle, [low, high], color=INK, fmt="o", capsize=4, label="measured against eager", zorder=4)
    for label, colour, marker, name in (
        ("predicted", WITH, "x", "predicted_overhead"),
        ("no schedule can be below", LIMIT_COLOUR, "_", "bound"),
    ):
        values = [
            (place + 0.24, 100 * getattr(pair.planned.plan.figures, name))
            for place, pair in measured
            if pair.planned.plan is not None
        ]
        axes.plot(*zip(*values, strict=True), color=colour, marker=marker, linestyle="", markersize=8, label=label)
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.set_ylabel("% of the step without a plan")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_parts(axes: Axes, measured: list[tuple[int, Pair]]) -> None:
    """Stacked from zero, what takes longer upwards and what takes less downwards; they add up to the difference."""
    for place, pair in measured:
        parts = pair.accounting
        if parts is None:
            continue
        base = median(pair.plain.ms)
        sizes = {
            "recompute": parts.recompute,
            "packing": parts.pack + parts.unpack + parts.state,
            "program": parts.program,
            "update": parts.update,
            "other": parts.other,
        }
        up = down = 0.0
        for name, (label, colour) in _PARTS.items():
            share = 100 * sizes[name] / base
            bottom = up if share > 0 else down
            once = label if place == measured[0][0] else None
            axes.bar(place, share, 0.3, bottom=bottom, color=colour, label=once)
            up, down = (up + share, down) if share > 0 else (up, down + share)
