"""`lowtide bench parallel`: steps on several ranks, by DDP and FSDP2 themselves and by plans at the same peaks."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Rounds, TimeLimit, at_least, parse_shares
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.extras import need
from lowtide.files import results

NAMES = ("parallel.json", "parallel.csv", "parallel.png")


@grouped()
def parallel(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    batch_size: BatchSize = 4,
    nproc: Annotated[int, typer.Option(metavar="N", help="Ranks of each kind.", callback=at_least(2))] = 2,
    ways: Annotated[str, typer.Option(metavar="ddp,fsdp", help="Which of them.")] = "fsdp,ddp",
    below: Annotated[
        str, typer.Option(metavar="P,P,...", help="Also plans at these per cents of the least peak of eager's.")
    ] = "90",
    rounds: Rounds = 5,
    warmup: Annotated[int, typer.Option(help="Steps of every kind before them.", callback=at_least(2))] = 3,
    time_limit: TimeLimit = 20.0,
    force: Force = False,
) -> None:
    """Peak of a rank and step time: eager DDP and FSDP2 with all their switches, and plans at the peaks they have."""
    need("reports", "lowtide bench parallel")
    shares = parse_shares(below, "--below") if below else []
    from lowtide.experiments.machine import this_machine
    from lowtide.experiments.parallel.report import draw_parallel, parallel_table, write_parallel_csv
    from lowtide.experiments.parallel.run import measure_parallel
    from lowtide.experiments.rank_training import find_way
    from lowtide.experiments.workload import Workload

    names = [find_way(name.strip()).value for name in ways.split(",")]
    with results(out, NAMES, force=force) as folder, progress_line("bench parallel") as say:
        asked = Workload(batch_size=batch_size, time_limit=time_limit, **asdict(chosen))
        found = measure_parallel(
            *(asked, names, shares),
            world=nproc,
            warmup=warmup,
            rounds=rounds,
            say=say,
            torch=this_machine().torch,
        )
        found.save(folder / NAMES[0])
        write_parallel_csv(found, folder / NAMES[1])
        draw_parallel(found, folder / NAMES[2])
    console = wide_console()
    console.print(parallel_table(found))
    tell_written(console, out, NAMES)
