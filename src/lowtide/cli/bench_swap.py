"""`lowtide bench swap`: recompute only, swap only and both, at several budgets, measured in turn."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.bench_budgets import parse_shares
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
    SwapDir,
    TimeLimit,
    check_time_limit,
)
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.cli.resources import resources_suffice
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results

NAMES = ("swap.json", "swap.csv", "swap.png")


def swap(
    model: Model,
    batch_size: BatchSize,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    left: Annotated[
        str, typer.Option(metavar="P,P,...", help="Per cent of the bytes above the residents that are left.")
    ] = "75,50,35,20",
    rounds: Annotated[int, typer.Option(help="Measured rounds; each runs every kind of step once.")] = 5,
    warmup: Annotated[int, typer.Option(help="Rounds before them that are thrown away.")] = 2,
    swap_dir: SwapDir = None,
    time_limit: TimeLimit = 60.0,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
    force: Force = False,
) -> None:
    """Plan one training step for several budgets without swaps, with swaps alone and with both; measure all in turn."""
    need("reports", "lowtide bench swap")
    check_time_limit(time_limit)
    shares = parse_shares(left)
    if rounds < 1 or warmup < 1:
        raise InputError(f"--rounds and --warmup must be at least 1, not {rounds} and {warmup}")
    with (
        results(out, NAMES, force=force) as folder,
        resources_suffice(batch_size),
        progress_line("bench swap") as say,
    ):
        say("build and capture")
        from lowtide.experiments.measure_plans import captured
        from lowtide.experiments.swap.report import draw_swap, swap_table, write_swap_csv
        from lowtide.experiments.swap.run import compare_swapping
        from lowtide.models import ModelOptions
        from lowtide.training.swap_use import SwapUse

        options = ModelOptions(image_size, seq_len, dropout)
        name, graph, eager_loss = captured(model, batch_size, options, optimizer=optimizer, lr=lr, seed=seed)
        use = SwapUse("auto", swap_dir)
        try:
            found = compare_swapping(
                graph,
                eager_loss,
                shares,
                use,
                name=name,
                rounds=rounds,
                warmup=warmup,
                time_limit=time_limit,
                say=say,
            )
        finally:
            use.close()
        found.save(folder / NAMES[0])
        write_swap_csv(found, folder / NAMES[1])
        draw_swap(found, folder / NAMES[2])
    console = wide_console()
    console.print(swap_table(found))
    tell_written(console, out, NAMES)
