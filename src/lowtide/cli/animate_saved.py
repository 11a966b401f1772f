"""`lowtide animate saved`: one step without and one with a plan, sampled while they run, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Budget, Chosen, Force, Frames, PlanningTime, PolicyName, check_gif
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.extras import need
from lowtide.files import results

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from lowtide.models.training import Training


@grouped()
def saved(
    chosen: Chosen,
    budget: Budget,
    out: Annotated[
        Path,
        typer.Option(metavar="FILE.gif", help="The picture; the samples go beside it as JSON.", show_default=False),
    ],
    batch_size: BatchSize = 8,
    policy: PolicyName = "optimal",
    time_limit: PlanningTime = None,
    frames: Frames = 80,
    force: Force = False,
) -> None:
    """Memory over one step, eager and planned, as the allocator has it while they run."""
    need("reports", "lowtide animate")
    check_gif(out, frames)
    names = (out.name, out.with_suffix(".json").name)
    with (
        results(out.parent, names, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("animate saved") as say,
    ):
        # torch takes a while to import: not before the options are known to be right.
        from lowtide.experiments.saved_memory.report import draw_saved_demo
        from lowtide.experiments.saved_memory.run import Planning, sampled_steps

        def fresh() -> "tuple[Training, Optimizer]":
            training = chosen.build(batch_size)
            return training, chosen.make_optimizer(training)

        samples = sampled_steps(fresh, Planning(budget, policy, time_limit), say)
        samples.save(folder / names[1])
        say("draw")
        draw_saved_demo(samples, folder / names[0], frames=frames)
    tell_written(wide_console(), out.parent, names)
