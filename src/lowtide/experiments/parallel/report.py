"""Steps on several ranks as CSV, as a table and as a picture."""

from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from lowtide.experiments.parallel.record import KindRow, Parallel, median_ms
from lowtide.files import write_csv
from lowtide.reporting.tables import figures_table, ratio_cell
from lowtide.units import format_bytes, format_ms

COLUMNS = (
    *("kind", "way", "group", "budget_B", "peak_B", "peaks_B", "counted_peak_B", "ms_median"),
    *("against_control", "against_rival", "against_rival_low", "against_rival_high", "no_slower", "no_larger"),
    *("predicted", "bound", "gathered_again", "startup_s", "equal", "failure"),
)
NOISE = 0.01
"""Share of a step: less is no difference."""


def write_parallel_csv(found: Parallel, path: Path) -> None:
    """One row for each kind."""
    write_csv(path, COLUMNS, (_cells(found, row) for row in found.rows))


def _cells(found: Parallel, row: KindRow) -> dict[str, object]:
    kind = row.kind
    cells: dict[str, object] = {"kind": kind.name, "way": kind.way, "group": row.group, "budget_B": kind.budget_B}
    if row.failure is not None:
        return cells | {"failure": row.failure}
    cells |= {
        "peak_B": found.peak(row),
        "peaks_B": " ".join(map(str, found.peaks(row))),
        "counted_peak_B": counted_peak(found, row),
        "ms_median": median_ms(found, row),
        "against_control": median(found.against_control(row)),
        "predicted": row.predicted,
        "bound": row.bound,
        "gathered_again": row.gathered_again,
        "startup_s": row.startup_s,
        "equal": found.is_equal(row),
    }
    extra = found.against_rival(row)
    if extra:
        cells |= {"against_rival": median(extra), "against_rival_low": min(extra), "against_rival_high": max(extra)}
        cells |= {"no_slower": median(extra) <= NOISE, "no_larger": found.peak(row) <= (kind.budget_B or 0)}
    return cells


def counted_peak(found: Parallel, row: KindRow) -> int | None:
    """Of a plan: the most bytes on a rank that count against the budget."""
    sizes = [step.planned_peak_B for ranks in found.counted(row) for step in ranks if step.planned_peak_B is not None]
    return max(sizes, default=None)


def parallel_table(found: Parallel) -> Group:
    """A line for each kind, group by group, and whether plans are at or below their rivals for no more time."""
    millions = found.parameters / 1e6
    title = Text(f"{found.model}, {millions:.0f} M parameters, {found.world} ranks, batch size {found.batch_size} each")
    columns = (
        "kind",
        "budget",
        "peak of a rank",
        "step",
        "against control",
        "against its rival",
        "predicted",
        "losses",
    )
    table = figures_table(title, columns)
    said: list[Text] = []
    for row in found.rows:
        budget = "-" if row.kind.budget_B is None else format_bytes(row.kind.budget_B)
        if row.failure is not None:
            table.add_row(row.kind.name, budget, "infeasible", *["-"] * 5)
            said.append(Text(f"{row.kind.name}: {row.failure}"))
            continue
        extra = found.against_rival(row)
        table.add_row(
            *(row.kind.name, budget, format_bytes(found.peak(row)), format_ms(median_ms(found, row))),
            "-" if row is found.control(row) else ratio_cell(found.against_control(row)),
            ratio_cell(extra) if extra else "-",
            "-" if row.predicted is None else f"{row.predicted:+.1%}",
            "equal" if found.is_equal(row) else "others",
        )
        if extra and (median(extra) > NOISE or found.peak(row) > (row.kind.budget_B or 0)):
            more = f"{median(extra):+.1%} time, {format_bytes(found.peak(row))} of {budget}"
            said.append(Text(f"{row.kind.name} does not hold its promise: {more}."))
    note = (
        "peak: all tensors that the process of a rank held, by the allocator, on the rank with the most. control: the "
        "first line of each group; rival: the eager kind whose peak is the budget. Medians of "
        f"{len(found.counted(found.rows[0]))} rounds (lowest to highest), all of a group in turn, after {found.warmup}."
    )
    return Group(table, Text(note), *said)


def draw_parallel(found: Parallel, path: Path) -> None:
    """Time against the peak of a rank, a panel for each way."""
    from lowtide.reporting.style import FAINT, INK, WITH, WITHOUT, Scale, framed, label_points

    rows = [row for row in found.rows if row.failure is None and row is not _repeated(found, row)]
    scale = Scale.of_bytes(max(found.peak(row) for row in rows))
    lines = (
        f"{found.world} ranks of gloo, batch size {found.batch_size} each, {found.optimizer}; {found.threads} "
        f"thread{'s' * (found.threads > 1)} each, torch {found.torch}",
        f"medians of {len(found.counted(rows[0]))} rounds in which all of a group took turns; bytes by the allocator",
    )
    ways = list(dict.fromkeys(row.kind.way for row in rows))
    with framed(path, f"{found.model}: time against the peak of a rank", lines, (6.0 * len(ways) + 1, 5.0)) as body:
        for axes, way in zip(body.subplots(1, len(ways), squeeze=False)[0], ways, strict=True):
            mine = [row for row in rows if row.kind.way == way]
            points = {
                row.kind.name: (found.peak(row) / scale.factor, 1 + median(found.against_control(row))) for row in mine
            }
            plans = sorted(points[row.kind.name] for row in mine if row.kind.budget_B is not None)
            axes.plot([x for x, _ in plans], [y for _, y in plans], color=WITH, lw=1.2)
            for row in mine:
                ours, (x, y) = row.kind.budget_B is not None, points[row.kind.name]
                axes.plot(x, y, "o", color=WITH if ours else WITHOUT, ms=7 if ours else 6)
            axes.axhline(1.0, color=FAINT, lw=0.8, ls=":")
            axes.margins(x=0.2, y=0.2)
            axes.set_xlabel(f"peak of a rank, {scale.unit}")
            axes.set_ylabel(f"step time, {mine[0].kind.name} is 1")
            axes.set_title(f"{way}: lowtide (no labels) and eager", size=10, color=INK)
            label_points(axes, [(*points[row.kind.name], row.kind.name) for row in mine if row.kind.budget_B is None])


def _repeated(found: Parallel, row: KindRow) -> KindRow | None:
    """`row` where it is the control of a later group: it is drawn once."""
    first = next(other for other in found.rows if other.kind == row.kind)
    return row if first is not row else None
