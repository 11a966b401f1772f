"""Options that several commands share, and the checks typer has no words for."""

import math
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lowtide.errors import InputError

ProblemFile = Annotated[
    Path, typer.Argument(metavar="PROBLEM.json", help="A lowtide-problem file.", show_default=False)
]
TimeLimit = Annotated[float, typer.Option("--time-limit", metavar="S", help="Seconds of planning at most.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same plan.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def check_time_limit(seconds: float) -> float:
    """A number of seconds that makes sense."""
    if not math.isfinite(seconds) or seconds <= 0:
        raise InputError(f"the time limit must be a number of seconds above zero, not {seconds}")
    return seconds


def output_file(path: Path, *, force: bool) -> Path:
    """Refuse, before any work is done, what could not be written in the end."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file to write")
    if path.exists() and not force:
        raise InputError(f"{path} is there already; give another name or --force")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise InputError(f"cannot write into {path.parent}: {error.strerror}") from error
