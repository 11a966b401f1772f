"""`lowtide bench startup`: how long it takes until a planned step is ready, counted in eager steps."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
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
from lowtide.cli.output import wide_console
from lowtide.cli.progress import progress_line
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
        import lowtide
        from lowtide.experiments.eager_copy import EagerCopy
        from lowtide.models import ModelOptions, build, make_optimizer

        training = build(model, batch_size, ModelOptions(image_size, seq_len, dropout), seed=seed)
        made = make_optimizer(optimizer, training.model, lr)
        eager = EagerCopy(training.model, made, training.loss)
        say("capture, profile and plan")
        began = perf_counter()
        step = lowtide.train_step(
            training.model, made, training.batch, training.loss, budget=budget, policy=policy, progress=False
        )
        whole = perf_counter() - began
        say("eager steps")
        times = [eager.step(training.batch)[1] / 1000 for _ in range(1 + steps)][1:]
        say("guards and a check")
        guards = [_seconds(lambda: step.is_ready_for(training.batch)) for _ in range(20)]
        step(training.batch)  # the first step is checked
    each = median(times)
    parts = step.seconds | {"all: one call of train_step": whole}
    table = Table("", "seconds", "eager steps", title=f"{training.name}: until a step is planned", box=None)
    for name, seconds in parts.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / each:.1f}")
    table.add_row(f"eager step, median of {steps}", f"{each:.2f}", f"{min(times):.2f} s to {max(times):.2f} s")
    table.add_row("before each step: guards, median of 20", f"{median(guards):.4f}", f"{median(guards) / each:.2%}")
    check = step.checks.seconds / step.checks.checks
    table.add_row("beside steps 1, 2, 4, 8 ...: the sentinel", f"{check:.2f}", f"{check / each:.2f}")
    wide_console().print(table)


def _seconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
