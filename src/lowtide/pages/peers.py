"""Tables of lowtide beside others at the same peaks: torch.compile's own budget, and the switches of DDP and FSDP2."""

from pathlib import Path
from statistics import median

from lowtide.experiments.compiled.record import EAGER, Compared
from lowtide.experiments.compiled.record import KindRow as CompiledRow
from lowtide.experiments.compiled.report import CLOSE
from lowtide.experiments.parallel.record import Parallel, median_ms
from lowtide.units import format_bytes, format_ms

_COMPILE_HEAD = (
    "| | | budget | peak | step | against torch 1, time | losses | gradients |",
    "|---|---|---|---|---|---|---|---|",
)
_ANSWERS_HEAD = ("| | at the peak of | lowtide's peak | its step against torch's |", "|---|---|---|---|")
_PARALLEL_HEAD = (
    "| | | budget | peak of a rank | step | against its rival, time | predicted | at best | losses |",
    "|---|---|---|---|---|---|---|---|---|",
)


def compile_table(folder: Path) -> str:
    """Every kind of step, from the files that `make bench-compile` wrote under `folder`."""
    rows = []
    for found in _compared(folder):
        for row in found.rows:
            budget = "" if row.budget_B is None else format_bytes(row.budget_B)
            start = f"| {_title(found)} | {row.kind} | {budget}"
            if row.failure is not None:
                rows.append(f"{start} | no plan | | | | |")
                continue
            ms = median(step.ms for step in found.counted(row))
            cells = (
                *(format_bytes(found.peak(row)), format_ms(ms), spread(found.against_unplanned(row))),
                *("equal" if found.losses_equal(row) else "others", _gradients(row)),
            )
            rows.append(f"{start} | {' | '.join(cells)} |")
    return "\n".join([*_COMPILE_HEAD, *rows])


def compile_answers(folder: Path) -> str:
    """lowtide at each peak that torch reaches, from the same files."""
    rows = []
    for found in _compared(folder):
        for theirs, ours, ratios in found.answers():
            rows.append(
                f"| {_title(found)} | {theirs.kind}, {format_bytes(found.peak(theirs))} "
                f"| {format_bytes(found.peak(ours))} | {spread(ratios)} |"
            )
    return "\n".join([*_ANSWERS_HEAD, *rows])


def parallel_table(folder: Path) -> str:
    """Every kind of step on ranks, from the files that `make bench-parallel` wrote under `folder`."""
    rows = []
    for path in sorted(folder.glob("*/parallel.json")):
        found = Parallel.load(path)
        for row in found.rows:
            if row is not next(other for other in found.rows if other.kind == row.kind):
                continue  # the control of a later group
            kind = row.kind
            budget = "" if kind.budget_B is None else format_bytes(kind.budget_B)
            start = f"| {found.model} | {kind.name} | {budget}"
            if row.failure is not None:
                rows.append(f"{start} | no plan | | | | | |")
                continue
            rival = found.against_rival(row)
            cells = (
                *(format_bytes(found.peak(row)), format_ms(median_ms(found, row)), spread(rival) if rival else ""),
                "" if row.predicted is None else f"{row.predicted:+.1%}",
                "" if row.bound is None else f"{row.bound:+.1%}",
                "equal" if found.is_equal(row) else "others",
            )
            rows.append(f"{start} | {' | '.join(cells)} |")
    return "\n".join([*_PARALLEL_HEAD, *rows])


def spread(ratios: list[float]) -> str:
    """The median with the lowest and the highest."""
    return f"{median(ratios):+.1%} ({min(ratios):+.0%} to {max(ratios):+.0%})"


def _compared(folder: Path) -> list[Compared]:
    return [Compared.load(path) for path in sorted(folder.glob("*/compile.json"))]


def _title(found: Compared) -> str:
    dropout = "" if found.dropout is None else f", dropout {found.dropout:g}"
    return f"{found.model}, batch {found.batch_size}{dropout}, {found.executor}"


def _gradients(row: CompiledRow) -> str:
    if row.off is None or row.kind == EAGER:
        return ""
    return "equal" if row.off == 0 else f"off by {row.off:.1e}" + (", wrong" if row.off > CLOSE else "")
