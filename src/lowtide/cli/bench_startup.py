"""`lowtide bench startup`: how long it takes until a planned step is ready, counted in eager steps."""

from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from lowtide.cli.options import (
    BatchSize,
    Dropout,
    ImageSize,
    LearningRate,
    Model,
    ModelSeed,
    OptimizerName,
    PolicyName,
    SeqLen,
)
from lowtide.cli.output import progress_line, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError
from lowtide.planning.policies import policy as find_policy
from lowtide.units import parse_bytes


def startup(
    model: Model,
    batch_size: BatchSize,
    budget: Annotated[str, typer.Option(metavar="BYTES|60%", help="As in lowtide train.")],
    steps: Annotated[int, typer.Option(help="Eager steps that are measured, after one to warm up.")] = 5,
    policy: PolicyName = "optimal",
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
) -> None:
    """Time of capture, profile and plan, and what the guards and the sentinel cost, in seconds and in eager steps."""
    parse_bytes(budget, whole=1)
    find_policy(policy)
    if steps < 1:
        raise InputError(f"--steps must be at least 1, not {steps}")
    with resources_suffice(batch_size), progress_line("bench startup") as say:
        say("build")
        from lowtide.experiments.startup.run import measure_startup
        from lowtide.models import ModelOptions, build, make_optimizer

        training = build(model, batch_size, ModelOptions(image_size, seq_len, dropout), seed=seed)
        made = make_optimizer(optimizer, training.model, lr)
        found = measure_startup(training, made, budget, policy, steps, say)
    each = median(found.eager)
    table = Table("", "seconds", "eager steps", title=f"{found.model}: until a step is planned", box=None)
    for name, seconds in (found.stages | {"all: one call of train_step": found.whole}).items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / each:.1f}")
    spread = f"{min(found.eager):.2f} s to {max(found.eager):.2f} s"
    table.add_row(f"eager step, median of {steps}", f"{each:.2f}", spread)
    guards = median(found.guards)
    table.add_row("before each step: guards, median of 20", f"{guards:.4f}", f"{guards / each:.2%}")
    table.add_row("beside steps 1, 2, 4, 8 ...: the sentinel", f"{found.sentinel:.2f}", f"{found.sentinel / each:.2f}")
    wide_console().print(table)
