"""`lowtide bench process`: what steps take of their process, as the operating system counts."""

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
    PolicyName,
    SeqLen,
    TimeLimit,
    check_time_limit,
)
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results
from lowtide.planning.policies import policy as find_policy

NAMES = ("process.json", "process.csv", "process.png")
LEAST_WARMUP = 2
"""The first makes the optimizer's state, the second is recorded."""


def process(
    model: Model,
    batch_size: BatchSize,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    left: Annotated[
        str, typer.Option(metavar="P,P,...", help="Per cent of the bytes above the residents that are left.")
    ] = "75,50,20",
    peers: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,...", help="Also: checkpoint, checkpoint every second, compile aot 0.5 ..."),
    ] = "",
    rounds: Annotated[int, typer.Option(help="Measured steps of every kind.")] = 5,
    warmup: Annotated[int, typer.Option(help="Steps of every kind before them.")] = 3,
    policy: PolicyName = "optimal",
    time_limit: TimeLimit = 30.0,
    image_size: ImageSize = None,
    seq_len: SeqLen = None,
    dropout: Dropout = None,
    optimizer: OptimizerName = "adam",
    lr: LearningRate = 1e-3,
    seed: ModelSeed = 0,
    force: Force = False,
) -> None:
    """Memory of the process, page faults and time of eager, warm eager, captured and planned steps, in turn."""
    check_time_limit(time_limit)
    find_policy(policy)
    shares = parse_shares(left)
    if rounds < 1 or warmup < LEAST_WARMUP:
        raise InputError(f"--rounds must be at least 1 and --warmup at least {LEAST_WARMUP}, not {rounds} and {warmup}")
    need("reports", "lowtide bench process")
    from lowtide.experiments.machine import this_machine
    from lowtide.experiments.process.peers import find_peer
    from lowtide.experiments.process.record import EAGER, KindSettings
    from lowtide.experiments.process.report import draw_process, process_table, write_process_csv
    from lowtide.experiments.process.run import measure_process

    beside = [name.strip() for name in peers.split(",") if name.strip()]
    for name in beside:
        find_peer(name)
    with results(out, NAMES, force=force) as folder, progress_line("bench process") as say:
        base = KindSettings(
            *(EAGER, None, model, batch_size, image_size, seq_len, dropout, optimizer, lr, seed, policy, time_limit)
        )
        found = measure_process(
            base, shares, beside, warmup=warmup, rounds=rounds, say=say, optimizer=optimizer, torch=this_machine().torch
        )
        found.save(folder / NAMES[0])
        write_process_csv(found, folder / NAMES[1])
        draw_process(found, folder / NAMES[2])
    console = wide_console()
    console.print(process_table(found))
    tell_written(console, out, NAMES)
