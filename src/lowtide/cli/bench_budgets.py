"""`lowtide bench budgets`: what budgets cost, measured against eager and captured steps in turn."""

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
    PolicyName,
    SeqLen,
    TimeLimit,
    check_time_limit,
)
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError, shown
from lowtide.extras import need
from lowtide.files import results
from lowtide.planning.policies import policy as find_policy

NAMES = ("budgets.json", "budgets.csv", "budgets.png")


def budgets(
    model: Model,
    batch_size: BatchSize,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    left: Annotated[
        str, typer.Option(metavar="P,P,...", help="Per cent of the bytes above the residents that are left.")
    ] = "75,50,35,20,12",
    rounds: Annotated[int, typer.Option(help="Measured rounds; each runs every kind of step once.")] = 5,
    warmup: Annotated[int, typer.Option(help="Rounds before them that are thrown away.")] = 2,
    policy: PolicyName = "optimal",
    time_limit: TimeLimit = 60.0,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
    force: Force = False,
) -> None:
    """Plan one training step for several budgets and measure them all, beside eager and captured steps."""
    need("reports", "lowtide bench budgets")
    check_time_limit(time_limit)
    find_policy(policy)
    shares = parse_shares(left)
    if rounds < 1 or warmup < 1:
        raise InputError(f"--rounds and --warmup must be at least 1, not {rounds} and {warmup}")
    with (
        results(out, NAMES, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("bench budgets") as say,
    ):
        say("build and capture")
        from lowtide.experiments.budgets.report import budgets_table, draw_budgets, write_budgets_csv
        from lowtide.experiments.budgets.run import compare_budgets
        from lowtide.experiments.measure_plans import captured
        from lowtide.models import ModelOptions

        options = ModelOptions(image_size, seq_len, dropout)
        name, graph, eager_loss = captured(model, batch_size, options, optimizer=optimizer, lr=lr, seed=seed)
        found = compare_budgets(
            graph,
            eager_loss,
            shares,
            name=name,
            policy=policy,
            rounds=rounds,
            warmup=warmup,
            time_limit=time_limit,
            say=say,
        )
        found.save(folder / NAMES[0])
        write_budgets_csv(found, folder / NAMES[1])
        draw_budgets(found, folder / NAMES[2])
    console = wide_console()
    console.print(budgets_table(found))
    tell_written(console, out, NAMES)


def parse_shares(text: str) -> list[float]:
    """`75,50` as 0.75 and 0.5."""
    try:
        shares = [float(word) / 100 for word in text.split(",")]
    except ValueError:
        raise InputError(f"--left takes per cents such as 75,50,12, not {shown(text)}") from None
    if not all(0 < share <= 1 for share in shares):
        raise InputError(f"--left takes per cents above 0 and up to 100, not {shown(text)}")
    return shares
