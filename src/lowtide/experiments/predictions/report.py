"""Predicted against measured, over all experiments: CSV, a scatter picture, and the worst by name."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowtide.experiments.predictions.record import Prediction
from lowtide.files import write_csv
from lowtide.reporting.bars import nothing_to_show
from lowtide.reporting.style import FAINT, INK, framed, rows_of, shorten
from lowtide.units import format_bytes, format_ms

COLUMNS = (
    *("file", "experiment", "model", "case", "predicted_peak_B", "measured_peak_B", "peak_error"),
    *("predicted_ms", "measured_ms", "low_ms", "high_ms", "time_error"),
)
_COLOURS = {
    "sweep": "#0072B2",
    "largest": "#CC79A7",
    "policies": "#009E73",
    "budgets": "#E69F00",
    "training": "#D55E00",
    "swap": "#8A5CC2",
}
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_NAMED = 3


def write_predictions_csv(found: Sequence[Prediction], path: Path) -> None:
    """One row per case."""
    write_csv(path, COLUMNS, ([getattr(each, name) for name in COLUMNS] for each in found))


def worst_peaks(found: Sequence[Prediction], count: int = _NAMED) -> list[Prediction]:
    """The largest errors of the peak, the worst first."""
    return sorted(found, key=lambda each: -abs(each.peak_error))[:count]


def worst_times(found: Sequence[Prediction], count: int = _NAMED) -> list[Prediction]:
    """The largest errors of the time, the worst first."""
    timed = [each for each in found if each.time_error is not None]
    return sorted(timed, key=lambda each: -abs(each.time_error or 0.0))[:count]


def draw_predictions(found: Sequence[Prediction], path: Path) -> None:
    """Two scatters with the diagonal, and below each of them the worst by name."""
    timed = [each for each in found if each.time_error is not None]
    lines = (
        f"{len(found)} cases with a peak, {len(timed)} with a time, of all experiments; a point on the line was "
        "predicted exactly",
        "time: predicted is the measured step without a plan of the same run, more by the predicted overhead; "
        "bars: all rounds",
    )
    with framed(path, "Predicted against measured", lines, (13, 7.8)) as figure:
        scatter, names = rows_of(figure, 5.3, 1.4)
        peak, time = scatter.subplots(1, 2)
        markers = dict(zip(dict.fromkeys(each.model for each in found), _MARKERS * len(found), strict=False))
        peak.set_title("Peak (bytes)")
        sizes = [each.predicted_peak_B for each in found], [each.measured_peak_B for each in found]
        _scatter(peak, found, *sizes, markers)
        _ticks(peak, LogLocator(2), format_bytes)
        time.set_title("Time of a step")
        if timed:
            predicted = [each.predicted_ms or 0.0 for each in timed]
            measured = [each.measured_ms or 0.0 for each in timed]
            low = [m - (each.low_ms or m) for each, m in zip(timed, measured, strict=True)]
            high = [(each.high_ms or m) - m for each, m in zip(timed, measured, strict=True)]
            time.errorbar(predicted, measured, [low, high], fmt="none", ecolor="#BBBBBB", elinewidth=0.8, zorder=2)
            _scatter(time, timed, predicted, measured, markers)
            _ticks(time, LogLocator(10, subs=(1, 2, 5)), format_ms)
        else:
            nothing_to_show(time, "no time was compared")
        for x, text in ((0.02, _worst_text(found, "peak")), (0.52, _worst_text(found, "time"))):
            names.text(x, 0.95, text, va="top", size=9, color=FAINT)


def _scatter(
    axes: Axes, cases: Sequence[Prediction], x: Sequence[float], y: Sequence[float], markers: dict[str, str]
) -> None:
    seen = set()
    for each, a, b in zip(cases, x, y, strict=True):
        key = (each.experiment, each.model)
        label = None if key in seen else f"{each.experiment}, {shorten(each.model, 24)}"
        seen.add(key)
        axes.plot(
            a, b, marker=markers[each.model], color=_COLOURS[each.experiment], linestyle="", markersize=6,
            alpha=0.75, label=label, zorder=3,
        )  # fmt: skip
    ends = 0.8 * min(*x, *y), 1.25 * max(*x, *y)
    axes.plot(list(ends), list(ends), color="#666666", linewidth=1, linestyle="--", zorder=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.legend(loc="upper left", fontsize=8, labelcolor=INK)


def _ticks(axes: Axes, at: LogLocator, words: Callable[[float], str]) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(at)
        axis.set_major_formatter(FuncFormatter(lambda value, _: words(value)))
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("predicted")
    axes.set_ylabel("measured")


def _worst_text(found: Sequence[Prediction], what: str) -> str:
    cases = worst_peaks(found) if what == "peak" else worst_times(found)
    rows = []
    for each in cases:
        error = each.peak_error if what == "peak" else each.time_error or 0.0
        rows.append(f"{error:+.3%}  {each.experiment}, {shorten(each.model, 20)}, {shorten(each.case, 44)}")
    return "\n".join([f"Worst errors of the {what} (measured against predicted):", *rows])


def predictions_table(found: Sequence[Prediction]) -> Group:
    """The worst errors of either kind."""
    table = Table("", "error", "predicted", "measured", "case", "file", box=None, padding=(0, 2, 0, 0))
    for each in worst_peaks(found, 5):
        sizes = format_bytes(each.predicted_peak_B), format_bytes(each.measured_peak_B)
        table.add_row("peak", f"{each.peak_error:+.2%}", *sizes, Text(f"{each.model}, {each.case}"), Text(each.file))
    for each in worst_times(found, 5):
        times = format_ms(each.predicted_ms or 0.0), format_ms(each.measured_ms or 0.0)
        table.add_row("time", f"{each.time_error:+.1%}", *times, Text(f"{each.model}, {each.case}"), Text(each.file))
    return Group(Text(f"{len(found)} cases; the worst predictions:", style="bold"), table)
