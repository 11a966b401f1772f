"""Options that several commands share, each with the check that typer has no words for.

The checks run while the words are read, those that were given first: a missing option hides no wrong one.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowtide.errors import InputError, shown
from lowtide.planning.policies import POLICIES, policy
from lowtide.units import parse_bytes

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from lowtide.models.training import Training


def at_least(least: int) -> Callable[[typer.CallbackParam, int], int]:
    """The check of a number."""

    def check(param: typer.CallbackParam, value: int) -> int:
        if value < least:
            raise InputError(f"--{(param.name or '').replace('_', '-')} must be at least {least}, not {value}")
        return value

    return check


def check_time_limit(seconds: float | None) -> float | None:
    """A number of seconds that makes sense."""
    if seconds is not None and (not math.isfinite(seconds) or seconds <= 0):
        raise InputError(f"the time limit must be a number of seconds above zero, not {seconds}")
    return seconds


def check_policy(name: str) -> str:
    """One that there is."""
    policy(name)
    return name


def check_budget(budget: str | None) -> str | None:
    """Bytes, or a share of something."""
    if budget is not None:
        parse_bytes(budget, whole=1)
    return budget


def parse_shares(text: str, option: str = "--left") -> list[float]:
    """`75,50` as 0.75 and 0.5; `option` is where it was written."""
    try:
        shares = [float(word) / 100 for word in text.split(",")]
    except ValueError:
        raise InputError(f"{option} takes per cents such as 75,50,12, not {shown(text)}") from None
    if not all(0 < share <= 1 for share in shares):
        raise InputError(f"{option} takes per cents above 0 and up to 100, not {shown(text)}")
    return shares


def _check_left(text: str) -> str:
    parse_shares(text)
    return text


ProblemFile = Annotated[
    Path, typer.Argument(metavar="PROBLEM.json", help="A lowtide-problem file.", show_default=False)
]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", metavar="S", help="Seconds of planning at most.", callback=check_time_limit)
]
PlanningTime = Annotated[
    float | None,
    typer.Option(
        metavar="S", help="Seconds of planning at most; about three steps where left out.", callback=check_time_limit
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same plan.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="P", help=f"One of {', '.join(POLICIES)}.", callback=check_policy)
]
Frames = Annotated[int, typer.Option(metavar="N", help="Frames of the picture.")]
SwapDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to swap to disk; default: temporary files.")]
Budget = Annotated[str, typer.Option(metavar="BYTES|60%", help="As in lowtide train.", callback=check_budget)]
Left = Annotated[
    str,
    typer.Option(
        metavar="P,P,...", help="Per cent of the bytes above the residents that are left.", callback=_check_left
    ),
]
Rounds = Annotated[int, typer.Option(help="Measured rounds; each runs every kind of step once.", callback=at_least(1))]
Warmup = Annotated[int, typer.Option(help="Runs of each kind before them that are thrown away.", callback=at_least(1))]

BatchSize = Annotated[int, typer.Option(help="Samples in the batch.")]
Model = Annotated[
    str,
    typer.Argument(
        help="mlp, resnet152, bert-base, gpt2, vit-base, unet, llama-3.1-8b, llama-3.1-70b, qwen2.5-7b, mistral-7b, "
        "gpt2-xl, vit-l, a config.json of transformers, or a function of the batch size that returns (model, batch) or "
        "(model, batch, loss): path/to/file.py:function or package.module:function.",
    ),
]
ImageSize = Annotated[
    int | None, typer.Option(help="Pixels per side (resnet152, vit-base; 224, unet; 128, a configuration's own).")
]
SeqLen = Annotated[
    int | None, typer.Option(help="Tokens per sample (bert-base, gpt2; 128, configurations; up to 2048).")
]
Dropout = Annotated[float | None, typer.Option(help="Dropout share (bert-base, gpt2; 0.1, vit-base; 0).")]
OptimizerName = Annotated[str, typer.Option(help="sgd, momentum, adam, adamw, rmsprop or adagrad.")]
LearningRate = Annotated[float, typer.Option(help="Learning rate.")]
ModelSeed = Annotated[int, typer.Option(help="Of the random weights and the synthetic batch.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """MODEL and what goes with it, the same for every command; see `lowtide.cli.groups`."""

    model: Model
    image_size: ImageSize = None
    seq_len: SeqLen = None
    dropout: Dropout = None
    optimizer: OptimizerName = "adam"
    lr: LearningRate = 1e-3
    seed: ModelSeed = 0

    def build(self, batch_size: int, seed: int | None = None) -> "Training":
        """By another seed where one is given. Imports torch, which takes a while: call it when all options are known to
        be right."""
        from lowtide.models import ModelOptions, build

        options = ModelOptions(self.image_size, self.seq_len, self.dropout)
        return build(self.model, batch_size, options, seed=self.seed if seed is None else seed)

    def make_optimizer(self, training: "Training") -> "Optimizer":
        """Over all parameters of the model."""
        from lowtide.models import make_optimizer

        return make_optimizer(self.optimizer, training.model, self.lr)


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
