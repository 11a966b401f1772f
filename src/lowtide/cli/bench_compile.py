"""`lowtide bench compile`: lowtide's backend of torch.compile against torch's own memory budget."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Rounds, TimeLimit, at_least, parse_shares
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.compiling.settings import EXECUTORS
from lowtide.errors import InputError, shown
from lowtide.extras import need
from lowtide.files import results

NAMES = ("compile.json", "compile.csv", "compile.png")
LEAST_WARMUP = 3
"""The backend plans in the first two steps."""


@grouped()
def compiled(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    batch_size: BatchSize = 8,
    executor: Annotated[str, typer.Option(help="eager (torch's aot_eager) or inductor, for both.")] = "eager",
    shares: Annotated[
        str,
        typer.Option(metavar="S,S,...", help="torch's activation_memory_budget, from 1.0, which is none, down to 0.0."),
    ] = "1.0,0.75,0.5,0.2,0.0",
    below: Annotated[
        str,
        typer.Option(metavar="P,P,...", help="Per cent of torch's lowest peak above the residents, also for lowtide."),
    ] = "75,50",
    rounds: Rounds = 5,
    warmup: Annotated[int, typer.Option(help="Steps of every kind before them.", callback=at_least(LEAST_WARMUP))] = 4,
    time_limit: TimeLimit = 30.0,
    force: Force = False,
) -> None:
    """torch.compile with lowtide's backend and with torch's activation_memory_budget, on one executor, in turn."""
    if executor not in EXECUTORS:
        raise InputError(f"--executor must be one of {', '.join(EXECUTORS)}, not {shown(executor)}")
    wanted, lower = _shares(shares), parse_shares(below)
    need("reports", "lowtide bench compile")
    from lowtide.experiments.compiled.record import EAGER, KindSettings
    from lowtide.experiments.compiled.report import compared_table, draw_compared, write_compared_csv
    from lowtide.experiments.compiled.run import measure_compiled
    from lowtide.experiments.machine import this_machine

    with results(out, NAMES, force=force) as folder, progress_line("bench compile") as say:
        base = KindSettings(
            kind=EAGER,
            share=None,
            budget=None,
            executor=executor,
            batch_size=batch_size,
            time_limit=time_limit,
            **asdict(chosen),
        )
        found = measure_compiled(base, wanted, lower, warmup=warmup, rounds=rounds, say=say, torch=this_machine().torch)
        found.save(folder / NAMES[0])
        write_compared_csv(found, folder / NAMES[1])
        draw_compared(found, folder / NAMES[2])
    console = wide_console()
    console.print(compared_table(found))
    tell_written(console, out, NAMES)


def _shares(text: str) -> list[float]:
    try:
        found = sorted({float(word) for word in text.split(",")}, reverse=True)
    except ValueError:
        raise InputError(f"--shares takes numbers such as 1.0,0.5,0.0, not {shown(text)}") from None
    if found[0] != 1.0 or found[-1] < 0:
        raise InputError(
            f"--shares takes 1.0, with which the others are compared, and numbers down to 0.0, not {shown(text)}"
        )
    return found
