"""`lowtide bench capture`: captured steps against eager ones, step by step in turn."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Warmup, at_least
from lowtide.cli.output import progress_line
from lowtide.files import results


@grouped()
def capture(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")],
    batch_size: BatchSize = 8,
    steps: Annotated[int, typer.Option(help="Measured steps of each kind.", callback=at_least(1))] = 10,
    warmup: Warmup = 2,
    force: Force = False,
) -> None:
    """Peak and time of the captured step beside eager training, and of its ops one by one."""
    name = f"capture_{''.join(c if c.isalnum() or c in '-_' else '_' for c in chosen.model)}.json"
    with results(out, (name,), force=force) as folder, progress_line("bench capture") as say:
        say("build and capture")
        import lowtide
        from lowtide.experiments.capture.report import capture_table
        from lowtide.experiments.capture.run import compare_with_eager
        from lowtide.tracing.loss import model_loss

        training = chosen.build(batch_size)
        loss = training.loss or model_loss
        made = chosen.make_optimizer(training)
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
