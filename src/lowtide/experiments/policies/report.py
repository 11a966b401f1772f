"""Policies beside each other: CSV, a picture, a table."""

from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lowtide.experiments.policies.record import Policies, PolicyRow
from lowtide.files import write_csv
from lowtide.reporting.style import INK, Scale, framed, shorten
from lowtide.units import format_bytes

COLUMNS = (
    *("policy", "budget_B", "predicted_peak_B", "measured_peak_B", "predicted_overhead", "bound", "planning_s"),
    *("against_captured", "against_captured_low", "against_captured_high"),
    *("against_eager", "against_eager_low", "against_eager_high"),
    *("kept", "recomputed", "packed", "swapped", "recomputed_B", "step", "failure"),
)
_LOOKS = {
    "optimal": ("#0072B2", "o"),
    "mutwo": ("#D55E00", "s"),
    "chen": ("#009E73", "^"),
    "keep_all": ("#8A8A8A", "D"),
}
BEYOND = 4.0
"""A plan whose extra time is more than this many times the most that `optimal` pays is only named in the picture."""


def write_policies_csv(found: Policies, path: Path) -> None:
    """One row per policy and budget; figures are empty where there is no plan."""
    table = []
    for row in found.rows:
        cells: dict[str, object] = {name: getattr(row, name) for name in COLUMNS[:7]}
        cells |= {"step": row.step, "failure": row.failure}
        if row.activations is not None:
            for name, ratios in (
                ("against_captured", found.against_captured(row)),
                ("against_eager", found.against_eager(row)),
            ):
                if ratios:
                    cells |= {name: median(ratios), f"{name}_low": min(ratios), f"{name}_high": max(ratios)}
            cells |= {
                fate: getattr(row.activations, fate).count for fate in ("kept", "recomputed", "packed", "swapped")
            }
            cells["recomputed_B"] = row.activations.recomputed.bytes
        table.append(cells)
    write_csv(path, COLUMNS, table)


def draw_policies(found: Policies, path: Path) -> None:
    """Left: extra time against the peak. Right: how many activations each policy recomputes to get there."""
    lines = (
        f"{shorten('; '.join(found.batch), 90)}; optimizer: {shorten(found.optimizer, 30)}; {found.device}, "
        f"{found.threads} threads, torch {found.torch}",
        f"all steps take turns in one run; filled: median of {len(found.captured_ms)} rounds with all rounds as bars, "
        "at the measured peak; hollow with lines: predicted",
    )
    scale = Scale.of_bytes(found.unplanned_peak_B)
    with framed(path, f"{shorten(found.model, 40)}: policies from slack to the floor", lines, (14, 6.6)) as figure:
        cost, count = figure.subplots(1, 2, width_ratios=[1.5, 1])
        names = list(dict.fromkeys(row.policy for row in found.rows))
        for place, name in enumerate(names):
            _draw_policy(cost, found, name, scale)
            _draw_counts(count, found, name, scale, place, len(names))
        _draw_bound(cost, found, scale)
        _cut_off(cost, found, scale)
        for axes in (cost, count):
            axes.axvline(found.floor_B / scale.factor, color="#999999", linewidth=1, linestyle=":")
            axes.invert_xaxis()
            axes.set_xlabel(
                f"peak ({scale.unit}); unplanned {format_bytes(found.unplanned_peak_B)}, "
                f"dotted: floor {format_bytes(found.floor_B)}"
                if axes is cost
                else f"budget ({scale.unit})"
            )
        cost.axhline(0, color="#999999", linewidth=0.8)
        cost.set_title("Extra time against the captured step")
        cost.set_ylabel("%")
        cost.legend(loc="upper left", labelcolor=INK)
        count.set_title("Activations recomputed")
        count.legend(loc="upper left", labelcolor=INK)


def _plans(found: Policies, name: str) -> list[PolicyRow]:
    return [row for row in found.of(name) if row.failure is None]


def _draw_policy(axes: Axes, found: Policies, name: str, scale: Scale) -> None:
    rows = _plans(found, name)
    failed = len(found.of(name)) - len(rows)
    colour, marker = _LOOKS[name]
    label = name + (f" (no plan for {failed} of {len(found.of(name))} budgets)" if failed else "")
    axes.plot(
        [(row.predicted_peak_B or 0) / scale.factor for row in rows],
        [100 * (row.predicted_overhead or 0.0) for row in rows],
        color=colour, marker=marker, markerfacecolor="white", linewidth=1.1, alpha=0.8, zorder=3,
    )  # fmt: skip
    rows = [row for row in rows if row.ms]
    ratios = [[100 * ratio for ratio in found.against_captured(row)] for row in rows]
    axes.errorbar(
        [(row.measured_peak_B or 0) / scale.factor for row in rows],
        [median(each) for each in ratios],
        [[median(each) - min(each) for each in ratios], [max(each) - median(each) for each in ratios]],
        color=colour, marker=marker, linestyle="", capsize=3, elinewidth=0.9, label=label, zorder=4,
    )  # fmt: skip


def _draw_bound(axes: Axes, found: Policies, scale: Scale) -> None:
    """A stair: a bound holds for every budget up to its own."""
    bounds = sorted(
        (row.budget_B / scale.factor, 100 * row.bound) for row in _plans(found, "optimal") if row.bound is not None
    )
    if bounds:
        axes.step(
            *zip(*bounds, strict=True), where="pre", color="#666666", linestyle="--", linewidth=1.2,
            label="no schedule can be below",
        )  # fmt: skip


def _cut_off(axes: Axes, found: Policies, scale: Scale) -> None:
    """End the axis above `optimal`, and name the plans that are far beyond: they would flatten all others."""
    highest = max((max(_overheads(found, row)) for row in _plans(found, "optimal")), default=0.0)
    beyond = [row for row in found.rows if row.failure is None and min(_overheads(found, row)) > BEYOND * highest > 0]
    if not beyond:
        return
    top = 100 * 1.3 * highest
    axes.set_ylim(-0.05 * top, top)
    for place, row in enumerate(beyond):
        predicted, *measured = _overheads(found, row)
        colour, _ = _LOOKS[row.policy]
        at = (row.predicted_peak_B or 0) / scale.factor, top * (0.97 - 0.05 * place)
        axes.plot(*at, marker="^", color=colour)
        run = f"{median(measured):+,.0%} measured" if measured else "too slow to run"
        axes.annotate(
            f"{row.policy} beyond the axis: {run}, {predicted:+,.0%} predicted",
            at, xytext=(-8, 0), textcoords="offset points", ha="right", va="center", size=8, color=colour,
        )  # fmt: skip


def _overheads(found: Policies, row: PolicyRow) -> list[float]:
    """Predicted, then every round's."""
    return [row.predicted_overhead or 0.0, *found.against_captured(row)]


def _draw_counts(axes: Axes, found: Policies, name: str, scale: Scale, place: int, of: int) -> None:
    rows = [row for row in _plans(found, name) if row.activations is not None]
    width = 0.16 * max(found.unplanned_peak_B - found.floor_B, 1) / scale.factor / of
    colour, _ = _LOOKS[name]
    at = [row.budget_B / scale.factor + ((of - 1) / 2 - place) * width for row in rows]
    counts = [row.activations.recomputed.count for row in rows if row.activations is not None]
    axes.bar(at, counts, width, color=colour, label=name)
    axes.margins(y=0.12)
    for x, count in zip(at, counts, strict=True):
        axes.annotate(
            str(count),
            (x, count),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            size=7,
            rotation=90,
            color=INK,
        )


def policies_table(found: Policies) -> Group:
    """Every policy at every budget."""
    title = Text(f"{found.model}, {found.optimizer}: as captured {format_bytes(found.captured_peak_B)}, ")
    title.append(f"residents {format_bytes(found.resident_B)}, floor {format_bytes(found.floor_B)}")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    columns = ("predicted peak", "measured peak", "predicted", "bound", "against captured", "recomputed", "packed")
    for column in ("policy", "budget", *columns, "planning"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(row.policy, format_bytes(row.budget_B), *_cells(found, row))
    return Group(table, Text(f"Median of {len(found.captured_ms)} rounds (lowest to highest)."))


def _cells(found: Policies, row: PolicyRow) -> list[str]:
    if row.activations is None or row.predicted_peak_B is None:
        return ["no plan", *["-"] * 7]
    ratios = found.against_captured(row)
    return [
        format_bytes(row.predicted_peak_B),
        "not run" if row.measured_peak_B is None else format_bytes(row.measured_peak_B),
        f"{row.predicted_overhead:+.1%}",
        f"{row.bound:+.1%}" if row.bound else "-",
        f"{median(ratios):+.1%} ({min(ratios):+.0%} to {max(ratios):+.0%})" if ratios else "too slow to run",
        str(row.activations.recomputed.count),
        str(row.activations.packed.count),
        f"{row.planning_s:.1f} s",
    ]
