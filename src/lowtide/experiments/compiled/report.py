"""torch.compile with two budgets as a table, as CSV and as a chart."""

from pathlib import Path
from statistics import median

from rich.console import Group
from rich.text import Text

from lowtide.experiments.compiled.record import EAGER, Compared, KindRow
from lowtide.files import write_csv
from lowtide.reporting.style import FAINT, WITH, WITHOUT, Scale, framed, label_points
from lowtide.reporting.tables import figures_table, ratio_cell
from lowtide.units import format_bytes, format_ms

COLUMNS = (
    *("kind", "activation_memory_budget", "budget_B", "peak_B", "ms_median", "against_torch_1", "losses_equal"),
    *("gradients_off_by", "failure"),
)
CLOSE = 1e-4
"""Gradients that are further off are wrong, not rounded otherwise."""


def write_compared_csv(found: Compared, path: Path) -> None:
    """One row for each kind."""
    table: list[list[object]] = []
    for row in found.rows:
        if row.failure is not None:
            table.append([row.kind, row.share, row.budget_B, *[None] * 5, row.failure])
            continue
        ms = median(step.ms for step in found.counted(row))
        against = median(found.against_unplanned(row))
        table.append(
            [
                *(row.kind, row.share, row.budget_B, found.peak(row), ms, against, found.losses_equal(row)),
                *(row.off, None),
            ]
        )
    write_csv(path, COLUMNS, table)


def compared_table(found: Compared) -> Group:
    """A line for each kind, and one for each peak that torch reaches."""
    dropout = "the model's dropout" if found.dropout is None else f"dropout {found.dropout:g}"
    title = Text(f"{found.model}, batch size {found.batch_size}, {dropout}, {found.executor}, {found.optimizer}")
    table = figures_table(title, ("kind", "budget", "peak", "step", "against torch 1", "losses", "gradients"))
    said: list[Text] = []
    for row in found.rows:
        budget = "-" if row.budget_B is None else format_bytes(row.budget_B)
        if row.failure is not None:
            table.add_row(row.kind, budget, "infeasible", *["-"] * 4)
            said.append(Text(f"{row.kind}: {row.failure}"))
            continue
        table.add_row(
            row.kind,
            budget,
            format_bytes(found.peak(row)),
            format_ms(median(step.ms for step in found.counted(row))),
            ratio_cell(found.against_unplanned(row)),
            "equal" if found.losses_equal(row) else "others",
            _gradients(row),
        )
    for theirs, ours, ratios in found.answers():
        said.append(
            Text(
                f"at the peak of {theirs.kind}, {format_bytes(found.peak(theirs))}: {ours.kind} takes "
                f"{format_bytes(found.peak(ours))} and {ratio_cell(ratios)} of its time"
            )
        )
    said.append(
        Text(
            "torch: torch.compile with that activation_memory_budget; lowtide: its backend with that budget, on the "
            "same executor. Peaks by the allocator, residents included. Gradients of the first batch from the first "
            "parameters and one seed, after all steps, against those of the first of torch's. Processes of their own "
            f"that took turns; {found.warmup} steps of each came before and do not count."
        )
    )
    return Group(table, *said)


def draw_compared(found: Compared, path: Path) -> None:
    """Time against memory: a point for each kind, a line for torch's and one for lowtide's."""
    rows = [row for row in found.rows if row.failure is None]
    points = {row.kind: (found.peak(row), median(step.ms for step in found.counted(row)) / 1000) for row in rows}
    scale = Scale.of_bytes(max(size for size, _ in points.values()))
    dropout = "the model's dropout" if found.dropout is None else f"dropout {found.dropout:g}"
    lines = (
        f"batch size {found.batch_size}, {dropout}, {found.optimizer}, executor {found.executor}; {found.threads} "
        f"threads, torch {found.torch}",
        f"medians of {len(found.counted(rows[0]))} steps that took turns; bytes by the allocator, residents included",
    )
    with framed(path, f"{found.model}: torch.compile, time against peak", lines, (9.0, 5.2)) as body:
        axes = body.subplots()
        labels = []
        for color, members in (
            (WITHOUT, [row for row in rows if row.share is not None]),
            (WITH, [row for row in rows if row.budget_B is not None]),
            (FAINT, [row for row in rows if row.kind == EAGER]),
        ):
            line = [points[row.kind] for row in members]
            axes.plot([size / scale.factor for size, _ in line], [time for _, time in line], "o-", color=color, lw=1.2)
            for row, (size, time) in zip(members, line, strict=True):
                wrong = row.off is not None and row.off > CLOSE
                labels.append((size / scale.factor, time, row.kind + (", gradients wrong" if wrong else "")))
        axes.margins(x=0.16, y=0.16)
        axes.set_xlabel(f"peak, {scale.unit}")
        axes.set_ylabel("step, seconds")
        label_points(axes, labels)


def _gradients(row: KindRow) -> str:
    if row.off is None:
        return "-"
    return "equal" if row.off == 0 else f"off by {row.off:.1e}"
