"""`lowtide policies`: every policy from slack to the floor, measured beside each other."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import (
    BatchSize,
    Dropout,
    Force,
    ImageSize,
    LearningRate,
    Model,
    ModelSeed,
    OptimizerName,
    SeqLen,
    TimeLimit,
    check_time_limit,
)
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results, write_text
from lowtide.planning.policies import policy as find_policy

NAMES = ("policies.json", "policies.csv", "policies.png", "tightest_plan.txt")


def policies(
    model: Model,
    batch_size: BatchSize,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    names: Annotated[str, typer.Option("--policies", metavar="P,P,...")] = "keep_all,chen,mutwo,optimal",
    points: Annotated[int, typer.Option(metavar="N", help="Budgets from slack to the floor, closer near it.")] = 6,
    rounds: Annotated[int, typer.Option(help="Measured rounds; each runs every kind of step once.")] = 3,
    warmup: Annotated[int, typer.Option(help="Rounds before them that are thrown away.")] = 2,
    slowest: Annotated[
        float, typer.Option(metavar="N", help="A plan predicted to take more than N captured steps is not run.")
    ] = 10.0,
    time_limit: TimeLimit = 30.0,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
    force: Force = False,
) -> None:
    """Plan one training step by every policy, for budgets from slack to the floor, and measure all plans in turn."""
    need("reports", "lowtide policies")
    check_time_limit(time_limit)
    wanted = names.split(",")
    for name in wanted:
        find_policy(name)
    if not slowest >= 1:
        raise InputError(f"--slowest must be at least 1, not {slowest:g}: the captured step itself takes one")
    if points < 2 or rounds < 1 or warmup < 1:
        raise InputError(
            f"--points must be at least 2, --rounds and --warmup at least 1, not {points}, {rounds} and {warmup}"
        )
    with (
        results(out, NAMES, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("policies") as say,
    ):
        say("build and capture")
        from lowtide.experiments.measure_plans import captured
        from lowtide.experiments.policies.report import draw_policies, policies_table, write_policies_csv
        from lowtide.experiments.policies.run import compare_policies
        from lowtide.models import ModelOptions
        from lowtide.reporting.explain import explain

        options = ModelOptions(image_size, seq_len, dropout)
        name, graph, eager_loss = captured(model, batch_size, options, optimizer=optimizer, lr=lr, seed=seed)
        found, tightest = compare_policies(
            graph,
            eager_loss,
            wanted,
            name=name,
            points=points,
            rounds=rounds,
            warmup=warmup,
            slowest=slowest,
            time_limit=time_limit,
            say=say,
        )
        found.save(folder / NAMES[0])
        write_policies_csv(found, folder / NAMES[1])
        draw_policies(found, folder / NAMES[2])
        write_text(folder / NAMES[3], "no plan was found\n" if tightest is None else explain(tightest))
    console = wide_console()
    console.print(policies_table(found))
    tell_written(console, out, NAMES)
