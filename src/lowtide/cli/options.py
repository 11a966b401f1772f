"""Options that several commands share, and the checks typer has no words for."""

import math
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lowtide.errors import InputError
from lowtide.planning.policies import POLICIES

ProblemFile = Annotated[
    Path, typer.Argument(metavar="PROBLEM.json", help="A lowtide-problem file.", show_default=False)
]
TimeLimit = Annotated[float, typer.Option("--time-limit", metavar="S", help="Seconds of planning at most.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same plan.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
PolicyName = Annotated[str, typer.Option("--policy", metavar="P", help=f"One of {', '.join(POLICIES)}.")]

Model = Annotated[
    str,
    typer.Argument(
        help="mlp, resnet152, bert-base, gpt2, vit-base, unet, or a function of the batch size that returns "
        "(model, batch) or (model, batch, loss): path/to/file.py:function or package.module:function.",
    ),
]
BatchSize = Annotated[int, typer.Option(help="Samples in the batch.")]
ImageSize = Annotated[int | None, typer.Option(help="Pixels per side (resnet152, vit-base; 224, unet; 128).")]
SeqLen = Annotated[int | None, typer.Option(help="Tokens per sample (bert-base, gpt2; 128).")]
Dropout = Annotated[float | None, typer.Option(help="Dropout share (bert-base, gpt2; 0.1, vit-base; 0).")]
OptimizerName = Annotated[str, typer.Option(help="sgd, momentum, adam, adamw, rmsprop or adagrad.")]
LearningRate = Annotated[float, typer.Option(help="Learning rate.")]
Frames = Annotated[int, typer.Option(metavar="N", help="Frames of the picture.")]
ModelSeed = Annotated[int, typer.Option(help="Of the random weights and the synthetic batch.")]
SwapDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to swap to disk; default: temporary files.")]


def check_time_limit(seconds: float) -> float:
    """A number of seconds that makes sense."""
    if not math.isfinite(seconds) or seconds <= 0:
        raise InputError(f"the time limit must be a number of seconds above zero, not {seconds}")
    return seconds


def check_gif(path: Path, frames: int) -> None:
    """A name and a number of frames that make sense for a moving picture."""
    if path.suffix.lower() != ".gif":
        raise InputError(f"--out must be a file whose name ends in .gif, not {path}")
    if not 2 <= frames <= 1000:
        raise InputError(f"--frames must be from 2 to 1000, not {frames}")


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
        raise InputError(f"cannot write into {path.parent}: {error.strerror}") from None
