"""`lowtide profile`: measure one training step and write what was found."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from lowtide.errors import InputError
from lowtide.files import results
from lowtide.units import parse_bytes

_NO_MEMORY = re.compile("not enough memory|can't allocate memory|out of memory|size calculation overflowed")
_WIDTH = 160
"""Of the tables where the output is no terminal."""


def profile(
    model: Annotated[
        str,
        typer.Argument(
            help="mlp, resnet152, bert-base, gpt2, or a function of the batch size that returns (model, batch) or "
            "(model, batch, loss): path/to/file.py:function or package.module:function.",
        ),
    ],
    batch_size: Annotated[int, typer.Option(help="Samples in the batch.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    runs: Annotated[int, typer.Option(help="Measured runs; the median counts.")] = 3,
    warmup: Annotated[int, typer.Option(help="Runs before them that are thrown away.")] = 1,
    image_size: Annotated[int | None, typer.Option(help="Pixels per side (resnet152; 224).")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Tokens per sample (bert-base, gpt2; 128).")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout share (bert-base, gpt2; 0.1).")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, adam, adamw, rmsprop or adagrad.")] = "adam",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 1e-3,
    budget: Annotated[
        str | None, typer.Option(help="Draw this line into the memory plot: 4GiB, 500MB, 60% (of the peak).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random weights and the synthetic batch.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite results in the folder.")] = False,
) -> None:
    """Measure time and memory of every op of one training step; write tables and plots."""
    from lowtide.reporting.profile_files import PROFILE_FILES, write_profile_files
    from lowtide.reporting.summary import summary

    if warmup < 1 or runs < 1:
        raise InputError(f"--warmup and --runs must be at least 1, not {warmup} and {runs}")
    if budget is not None:
        parse_bytes(budget, whole=1)  # refuse before the long work
    with results(out, PROFILE_FILES, force=force) as folder, _resources_suffice(batch_size), _progress() as progress:
        building = progress.add_task("build and capture", total=2)
        # torch takes a while to import: not before the options are known to be right.
        import lowtide
        from lowtide.models import ModelOptions, build, make_optimizer

        training = build(model, batch_size, ModelOptions(image_size, seq_len, dropout), seed=seed)
        progress.advance(building)
        made = make_optimizer(optimizer, training.model, lr)
        graph = lowtide.capture(training.model, made, training.batch, training.loss)
        progress.advance(building)
        measuring = progress.add_task("measure", total=1)

        def on_progress(done: int, total: int, what: str) -> None:
            progress.update(measuring, completed=done, total=total, description=f"measure, {what}")

        measured = lowtide.profile(graph, warmup=warmup, runs=runs, progress=on_progress)
        measured = replace(measured, model=training.name)
        progress.update(measuring, description="measure")
        limit = None if budget is None else parse_bytes(budget, whole=measured.peak_B)
        writing = progress.add_task("write", total=len(PROFILE_FILES))
        try:
            for _ in write_profile_files(measured, folder, budget=limit):
                progress.advance(writing)
        except OSError as error:  # a full disk
            raise InputError(f"cannot write into {out}: {error.strerror}") from error
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    console.print(summary(measured))
    console.print(Text("\nWritten:", style="bold"))
    for name in PROFILE_FILES:
        console.print(Text(f"  {out / name}"), soft_wrap=True)


@contextmanager
def _resources_suffice(batch_size: int) -> Iterator[None]:
    """Too little memory or a full disk is no bug: say so in one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch has no class of its own for it on CPU
        if isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)):
            raise InputError(f"not enough memory for batch size {batch_size}: try a smaller one") from error
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise InputError(f"cannot write temporary files: {error.strerror}; set TMPDIR to a larger disk") from error


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
