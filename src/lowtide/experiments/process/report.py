"""What steps take of their process, as a table and as CSV."""

from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from lowtide.experiments.process.record import CAPTURED, WARM, KindRow, ProcessMemory
from lowtide.files import write_csv
from lowtide.reporting.style import FAINT, INK, WITH, WITHOUT, Scale, framed
from lowtide.reporting.tables import figures_table, ratio_cell
from lowtide.units import format_bytes, format_ms

COLUMNS = (
    *("kind", "budget_B", "allocator_peak_B", "process_B", "process_over_budget", "resident_B", "ready_B", "base_B"),
    *("arena_B", "unforeseen", "faults_median", "faults_most", "ms_median", "against_warm_eager", "equal", "failure"),
)


def write_process_csv(found: ProcessMemory, path: Path) -> None:
    """One row for each kind."""
    table: list[list[object]] = []
    for row in found.rows:
        if row.failure is not None:
            table.append([row.kind, row.budget_B, *[None] * (len(COLUMNS) - 3), row.failure])
            continue
        steps, high = found.counted(row), found.high(row)
        faults = [step.faults for step in steps]
        over = None if row.budget_B is None else high / row.budget_B - 1
        table.append(
            [
                *(row.kind, row.budget_B, _peak(found, row), high, over, row.resident_B, row.ready_B, row.base_B),
                *(row.arena_B, row.unforeseen, median(faults), max(faults), median(step.ms for step in steps)),
                *(median(_against_warm(found, row)), found.is_equal(row), None),
            ]
        )
    write_csv(path, COLUMNS, table)


def process_table(found: ProcessMemory) -> Group:
    """A line for each kind."""
    title = Text(f"{found.model}, batch size {found.batch_size}, {found.optimizer}: memory of the process")
    columns = (
        "kind",
        "budget",
        "allocator",
        "process",
        "over budget",
        "faults a step",
        "step",
        "against warm eager",
        "losses",
    )
    table = figures_table(title, columns)
    failures = []
    for row in found.rows:
        budget = "-" if row.budget_B is None else format_bytes(row.budget_B)
        if row.failure is not None:
            table.add_row(row.kind, budget, "infeasible", *["-"] * 6)
            failures.append(Text(f"{row.kind}: {row.failure}"))
            continue
        steps, high, peak = found.counted(row), found.high(row), _peak(found, row)
        table.add_row(
            row.kind,
            budget,
            "-" if peak is None else format_bytes(peak),
            format_bytes(high),
            "-" if row.budget_B is None else f"{high / row.budget_B - 1:+.1%}",
            f"{median(step.faults for step in steps):,.0f}",
            format_ms(median(step.ms for step in steps)),
            ratio_cell(_against_warm(found, row)),
            "equal" if found.is_equal(row) else "others",
        )
    said = (
        "process: the most memory in a step (VmHWM) above what Python, torch and lowtide had before the model was "
        "built, after a tiny model had been trained the same way. Processes of their own that took turns; "
        f"{found.warmup} steps of each came before and do not count."
    )
    return Group(table, Text(said), *failures)


def _peak(found: ProcessMemory, row: KindRow) -> int | None:
    return max((step.peak_B for step in found.counted(row) if step.peak_B is not None), default=None)


def _against_warm(found: ProcessMemory, row: KindRow) -> list[float]:
    """Of each round the time against warm eager's, less one."""
    warm = next(other for other in found.rows if other.kind == WARM)
    return [mine.ms / other.ms - 1 for mine, other in zip(found.counted(row), found.counted(warm), strict=True)]


def draw_process(found: ProcessMemory, path: Path) -> None:
    """Time against memory, a point for each kind; plans are joined by a line."""
    rows = [row for row in found.rows if row.failure is None and _peak(found, row) is not None]
    points = {row.kind: (_peak(found, row) or 0, 1 + median(_against_warm(found, row))) for row in rows}
    scale = Scale.of_bytes(max(size for size, _ in points.values()))
    lines = (
        f"batch size {found.batch_size}, {found.optimizer}; {found.threads} threads, torch {found.torch}",
        f"medians of {len(found.counted(rows[0]))} steps that took turns; bytes by the allocator",
    )
    with framed(path, f"{found.model}: time against peak", lines, (9.0, 5.2)) as body:
        axes = body.subplots()
        plans = sorted(points[row.kind] for row in rows if row.budget_B is not None)
        axes.plot([size / scale.factor for size, _ in plans], [time for _, time in plans], color=WITH, lw=1.5)
        for row in rows:
            size, time = points[row.kind]
            ours = row.budget_B is not None or row.kind == CAPTURED
            axes.plot(size / scale.factor, time, "o", color=WITH if ours else WITHOUT, ms=7 if ours else 6)
            axes.annotate(
                row.kind if found.is_equal(row) else f"{row.kind} (other losses)",
                (size / scale.factor, time),
                textcoords="offset points",
                xytext=(7, 5),
                size=8.5,
                color=INK,
            )
        axes.axhline(1.0, color=FAINT, lw=0.8, ls=":")
        axes.margins(x=0.14, y=0.16)
        axes.set_xlabel(f"peak, {scale.unit}")
        axes.set_ylabel("step time, warm eager is 1")
