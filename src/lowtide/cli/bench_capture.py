"""`lowtide bench capture`: captured steps against eager ones, step by step in turn."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lowtide.cli.options import BatchSize, Force, Model, OptimizerName
from lowtide.cli.output import progress_line
from lowtide.errors import InputError
from lowtide.files import results


def capture(
    model: Model,
    batch_size: BatchSize,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")],
    steps: Annotated[int, typer.Option(help="Measured steps of each kind.")] = 10,
    warmup: Annotated[int, typer.Option(help="Steps of each kind that are thrown away.")] = 2,
    optimizer: OptimizerName = "adam",
    force: Force = False,
) -> None:
    """Peak and time of the captured step beside eager training, and of its ops one by one."""
    if steps < 1 or warmup < 1:
        raise InputError(f"--steps and --warmup must be at least 1, not {steps} and {warmup}")
    name = f"capture_{''.join(c if c.isalnum() or c in '-_' else '_' for c in model)}.json"
    with results(out, (name,), force=force) as folder, progress_line("bench capture") as say:
        say("build and capture")
        import lowtide
        from lowtide.experiments.capture.report import capture_table
        from lowtide.experiments.capture.run import compare_with_eager
        from lowtide.models import build, make_optimizer
        from lowtide.tracing.loss import model_loss

        training = build(model, batch_size)
        loss = training.loss or model_loss
        made = make_optimizer(optimizer, training.model, 1e-3)
        graph = lowtide.capture(training.model, made, training.batch, training.loss)
        comparison = compare_with_eager(
            graph,
            lambda: loss(training.model, training.batch),
            name=training.name,
            steps=steps,
            warmup=warmup,
            progress=lambda done, total, what: say(f"{what}, {done} of {total}"),
        )
        comparison.save(folder / name)
    Console().print(capture_table(comparison))
