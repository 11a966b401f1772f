"""What steps take of their process, as a table and as CSV."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from lowtide.experiments.process.record import CAPTURED, PLAIN, KindRow, ProcessMemory
from lowtide.files import write_csv
from lowtide.reporting.style import FAINT, WITH, WITHOUT, Scale, framed, label_points
from lowtide.reporting.tables import figures_table, ratio_cell
from lowtide.units import format_bytes, format_ms

COLUMNS = (
    *("kind", "budget_B", "allocator_peak_B", "process_B", "process_over_budget", "resident_B", "ready_B", "base_B"),
    *("arena_B", "unforeseen", "faults_median", "faults_most", "ms_median", "against_warm_eager", "predicted"),
    *("bound", "startup_s", "equal", "failure"),
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
                *(row.kind, row.budget_B, found.peak(row), high, over, row.resident_B, row.ready_B, row.base_B),
                *(row.arena_B, row.unforeseen, median(faults), max(faults), median(step.ms for step in steps)),
                median(found.against_warm(row)),
                *((None, None) if row.promise is None else (row.promise.overhead, row.promise.bound)),
                *(row.startup_s, found.is_equal(row), None),
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
        "predicted",
        "bound",
        "start-up",
        "losses",
    )
    table = figures_table(title, columns)
    failures = []
    for row in found.rows:
        budget = "-" if row.budget_B is None else format_bytes(row.budget_B)
        if row.failure is not None:
            table.add_row(row.kind, budget, "infeasible", *["-"] * 9)
            failures.append(Text(f"{row.kind}: {row.failure}"))
            continue
        steps, high, peak = found.counted(row), found.high(row), found.peak(row)
        table.add_row(
            row.kind,
            budget,
            "-" if peak is None else format_bytes(peak),
            format_bytes(high),
            "-" if row.budget_B is None else f"{high / row.budget_B - 1:+.1%}",
            f"{median(step.faults for step in steps):,.0f}",
            format_ms(median(step.ms for step in steps)),
            ratio_cell(found.against_warm(row)),
            *(("-", "-") if row.promise is None else (f"{row.promise.overhead:+.1%}", f"{row.promise.bound:+.1%}")),
            f"{row.startup_s:.1f} s",
            "equal" if found.is_equal(row) else "others",
        )
    said = (
        "process: the most memory in a step (VmHWM) above what Python, torch and lowtide had before the model was "
        "built, after a tiny model had been trained the same way. Processes of their own that took turns; "
        f"{found.warmup} steps of each came before and do not count. predicted, bound: what a plan adds to the "
        "captured step and what any plan under that budget adds at least, by the times it was made from."
    )
    return Group(table, Text(said), *failures)


def draw_process(found: ProcessMemory, path: Path) -> None:
    """Time against memory: a point for each kind, a line for each way of planning, and the certified bound."""
    rows = [row for row in found.rows if row.failure is None and found.peak(row) is not None]
    points = {row.kind: (found.peak(row) or 0, 1 + median(found.against_warm(row))) for row in rows}
    scale = Scale.of_bytes(max(size for size, _ in points.values()))
    lines = (
        f"batch size {found.batch_size}, {found.optimizer}; {found.threads} threads, torch {found.torch}",
        f"medians of {len(found.counted(rows[0]))} steps that took turns, thin lines from the lowest to the highest; "
        "bytes by the allocator",
    )
    with framed(path, f"{found.model}: time against peak", lines, (9.0, 5.2)) as body:
        axes = body.subplots()
        ways: dict[str, list[KindRow]] = {}
        for row in rows:
            if row.budget_B is not None:
                ways.setdefault(_way(row.kind), []).append(row)
        for way, plans in ways.items():
            line = sorted(points[row.kind] for row in plans)
            axes.plot(*_scaled(line, scale), color=WITH if way == PLAIN else FAINT, lw=1.5 if way == PLAIN else 0.9)
        bounds = sorted((row.budget_B or 0, 1 + row.promise.bound) for row in ways[PLAIN] if row.promise)
        label = "certified bound above warm eager, by predicted times"
        axes.plot(*_scaled(bounds, scale), color=WITH, lw=1.0, ls="--", label=label)
        labels = []
        for row in {row.kind: row for row in rows}.values():
            size, time = points[row.kind]
            spread = [1 + share for share in found.against_warm(row)]
            axes.plot([size / scale.factor] * 2, [min(spread), max(spread)], color=FAINT, lw=0.8, zorder=1)
            ours = row.kind == CAPTURED or (row.budget_B is not None and _way(row.kind) == PLAIN)
            axes.plot(size / scale.factor, time, "o", color=WITH if ours else WITHOUT, ms=7 if ours else 6)
            labels.append((size / scale.factor, time, row.kind + ("" if found.is_equal(row) else " (other losses)")))
        axes.axhline(1.0, color=FAINT, lw=0.8, ls=":")
        axes.margins(x=0.14, y=0.16)
        axes.set_xlabel(f"peak, {scale.unit}")
        axes.set_ylabel("step time, warm eager is 1")
        if bounds:
            axes.legend(frameon=False, fontsize=8.5, loc="upper right")
        label_points(axes, labels)


def _way(kind: str) -> str:
    """How a plan called `kind` was made."""
    return kind.partition(", ")[2] or PLAIN


def _scaled(points: Sequence[tuple[int, float]], scale: Scale) -> tuple[list[float], list[float]]:
    return [size / scale.factor for size, _ in points], [time for _, time in points]
