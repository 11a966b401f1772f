"""`lowtide animate saved`: one step without and one with a plan, sampled while they run, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lowtide.cli.options import (
    BatchSize,
    Dropout,
    Force,
    Frames,
    ImageSize,
    LearningRate,
    Model,
    ModelSeed,
    OptimizerName,
    PolicyName,
    SeqLen,
    check_gif,
    check_time_limit,
)
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.cli.train import PlanningTime
from lowtide.extras import need
from lowtide.files import results
from lowtide.planning.policies import policy as find_policy
from lowtide.units import parse_bytes

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from lowtide.models.training import Training


def saved(
    model: Model,
    batch_size: BatchSize,
    budget: Annotated[str, typer.Option(metavar="BYTES|60%", help="As in lowtide train.")],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE.gif", help="The picture; the samples go beside it as JSON.", show_default=False),
    ],
    policy: PolicyName = "optimal",
    time_limit: PlanningTime = None,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
    frames: Frames = 80,
    force: Force = False,
) -> None:
    """Memory over one step, eager and planned, as the allocator has it while they run."""
    need("reports", "lowtide animate")
    check_gif(out, frames)
    parse_bytes(budget, whole=1)
    find_policy(policy)
    if time_limit is not None:
        check_time_limit(time_limit)
    names = (out.name, out.with_suffix(".json").name)
    with (
        results(out.parent, names, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("animate saved") as say,
    ):
        # torch takes a while to import: not before the options are known to be right.
        from lowtide.experiments.saved_memory.report import draw_saved_demo
        from lowtide.experiments.saved_memory.run import Planning, sampled_steps
        from lowtide.models import ModelOptions, build, make_optimizer

        def fresh() -> "tuple[Training, Optimizer]":
            training = build(model, batch_size, ModelOptions(image_size, seq_len, dropout), seed=seed)
            return training, make_optimizer(optimizer, training.model, lr)

        samples = sampled_steps(fresh, Planning(budget, policy, time_limit), say)
        samples.save(folder / names[1])
        say("draw")
        draw_saved_demo(samples, folder / names[0], frames=frames)
    tell_written(wide_console(), out.parent, names)
