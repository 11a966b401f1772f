"""`lowtide bench startup`: how long it takes until a planned step is ready, counted in eager steps."""

from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Budget, Chosen, Force, PolicyName, at_least
from lowtide.cli.output import progress_line, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.files import results

NAME = "startup.json"


@grouped()
def startup(
    chosen: Chosen,
    budget: Budget,
    batch_size: BatchSize = 8,
    steps: Annotated[
        int, typer.Option(help="Eager steps that are measured, after one to warm up.", callback=at_least(1))
    ] = 5,
    policy: PolicyName = "optimal",
    measure: Annotated[str, typer.Option(help="Measure ops before the first step, or in training.")] = "before",
    shapes: Annotated[
        int,
        typer.Option(
            help="Other lengths, or batch sizes, that then take turns, four steps each.", callback=at_least(0)
        ),
    ] = 9,
    out: Annotated[Path | None, typer.Option(help=f"Folder for {NAME}.")] = None,
    force: Force = False,
) -> None:
    """Time of capture, profile and plan, of guards and sentinel, and of other shapes, in seconds and in eager steps."""
    with (
        nullcontext() if out is None else results(out, (NAME,), force=force) as folder,
        resources_suffice(batch_size),
        progress_line("bench startup") as say,
    ):
        say("build")
        from lowtide.experiments.startup.run import measure_startup

        training = chosen.build(batch_size)
        found = measure_startup(training, chosen.make_optimizer(training), budget, policy, measure, steps, shapes, say)
        if folder is not None:
            found.save(folder / NAME)
    each = found.eager_step_s
    table = Table("", "seconds", "eager steps", title=f"{found.model}: until a step is planned", box=None)
    stages = {stage.name: stage.seconds for stage in found.stages}
    whole = f"all, beyond {found.meanwhile} steps that were trained meanwhile"
    for name, seconds in (stages | {whole: found.whole_s, "until the first loss": found.first_loss_s}).items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / each:.1f}")
    spread = f"{min(found.eager_s):.2f} s to {max(found.eager_s):.2f} s"
    table.add_row(f"eager step, median of {steps}", f"{each:.2f}", spread)
    guards = median(found.guards_s)
    table.add_row("before each step: guards, median of 20", f"{guards:.4f}", f"{guards / each:.2%}")
    table.add_row(
        "beside steps 1, 2, 4, 8 ...: the sentinel", f"{found.sentinel_s:.2f}", f"{found.sentinel_s / each:.2f}"
    )
    if found.shapes:
        own = sum(shape.measured for shape in found.shapes)
        name = f"{len(found.shapes)} other shapes, {own} of them measured and planned for themselves"
        table.add_row(name, f"{found.shapes_s:.2f}", f"{found.shapes_s / each:.1f}")
    wide_console().print(table)
