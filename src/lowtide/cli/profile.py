"""`lowtide profile`: measure one training step and write what was found."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Warmup, at_least, check_budget
from lowtide.cli.output import tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results
from lowtide.units import parse_bytes

if TYPE_CHECKING:
    from lowtide.graph.step_graph import StepGraph
    from lowtide.records.profile import Profile

PROBLEM = "problem.json"
"""What the planner would be given, for `lowtide schedule` and `lowtide frontier`."""


@grouped()
def profile(
    chosen: Chosen,
    batch_size: BatchSize = 8,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and plots; left out: a summary alone.")] = None,
    runs: Annotated[int, typer.Option(help="Measured runs; the median counts.", callback=at_least(1))] = 3,
    warmup: Warmup = 1,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Draw this line into the memory plot: 4GiB, 500MB, 60% (of the peak).", callback=check_budget
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Measure time and memory of every op of one training step; write tables and plots."""
    need("reports", "lowtide profile")
    if out is None and budget is not None:
        raise InputError("--budget draws a line into the plots of --out: give a folder")
    from lowtide.reporting.summary import summary

    names = _file_names() if out is not None else ()
    with (
        nullcontext() if out is None else results(out, names, force=force) as folder,
        resources_suffice(batch_size),
        _progress() as progress,
    ):
        building = progress.add_task("build and capture", total=2)
        # torch takes a while to import: not before the options are known to be right.
        import lowtide

        training = chosen.build(batch_size)
        progress.advance(building)
        made = chosen.make_optimizer(training)
        graph = lowtide.capture(training.model, made, training.batch, training.loss)
        progress.advance(building)
        measuring = progress.add_task("measure", total=1)

        def on_progress(done: int, total: int, what: str) -> None:
            progress.update(measuring, completed=done, total=total, description=f"measure, {what}")

        measured = lowtide.profile(graph, warmup=warmup, runs=runs, progress=on_progress)
        measured = replace(measured, model=training.name)
        progress.update(measuring, description="measure")
        if folder is not None:
            limit = None if budget is None else parse_bytes(budget, whole=measured.peak_B)
            try:
                _write(graph, measured, folder, limit, progress)
            except OSError as error:  # a full disk
                raise InputError(f"cannot write into {out}: {error.strerror}") from None
    console = wide_console()
    console.print(summary(measured))
    if out is not None:
        tell_written(console, out, names)


def _file_names() -> tuple[str, ...]:
    from lowtide.reporting.profile_files import PROFILE_FILES

    return (*PROFILE_FILES, PROBLEM)


def _write(graph: "StepGraph", measured: "Profile", folder: Path, budget: int | None, progress: Progress) -> None:
    """All files of a profile."""
    from lowtide.planning.problem_file import save_problem
    from lowtide.profiling.problem import problem_of
    from lowtide.reporting.profile_files import write_profile_files

    writing = progress.add_task("write", total=len(_file_names()))
    for _ in write_profile_files(measured, folder, budget=budget):
        progress.advance(writing)
    save_problem(replace(problem_of(graph, measured).problem, name=measured.model), folder / PROBLEM)
    progress.advance(writing)


def _progress() -> Progress:
    """Bars on stderr: stdout is for what was found."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
