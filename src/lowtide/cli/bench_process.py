"""`lowtide bench process`: what steps take of their process, as the operating system counts."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import BatchSize, Chosen, Force, Left, Rounds, TimeLimit, at_least, parse_shares
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results

NAMES = ("process.json", "process.csv", "process.png")
LEAST_WARMUP = 2
"""The first makes the optimizer's state, the second is recorded."""


@grouped()
def process(
    chosen: Chosen,
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    batch_size: BatchSize = 8,
    left: Left = "75,50,20",
    peers: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,...", help="Also: checkpoint, checkpoint every second, compile aot 0.5 ..."),
    ] = "",
    variants: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,...", help="Plans beside the usual: mutwo, chen, no packing, late updates ..."),
    ] = "",
    at_once: Annotated[
        int,
        typer.Option(
            help="Processes that live at a time, one of them warm eager; the others form groups.", callback=at_least(2)
        ),
    ] = 9,
    rounds: Rounds = 5,
    warmup: Annotated[int, typer.Option(help="Steps of every kind before them.", callback=at_least(LEAST_WARMUP))] = 3,
    time_limit: TimeLimit = 30.0,
    force: Force = False,
) -> None:
    """Memory of the process, page faults and time of eager, warm eager, captured and planned steps, in turn."""
    shares = parse_shares(left)
    need("reports", "lowtide bench process")
    from lowtide.experiments.machine import this_machine
    from lowtide.experiments.process.peers import find_peer
    from lowtide.experiments.process.record import EAGER, PLAIN, KindSettings, find_variant
    from lowtide.experiments.process.report import draw_process, process_table, write_process_csv
    from lowtide.experiments.process.run import measure_process

    beside, ways = _names(peers), [PLAIN, *(name for name in _names(variants) if name != PLAIN)]
    for name in beside:
        find_peer(name)
    for name in ways:
        find_variant(name)
    with results(out, NAMES, force=force) as folder, progress_line("bench process") as say:
        base = KindSettings(
            kind=EAGER, budget=None, variant=PLAIN, batch_size=batch_size, time_limit=time_limit, **asdict(chosen)
        )
        found = measure_process(
            *(base, shares, beside, ways),
            warmup=warmup,
            rounds=rounds,
            at_once=at_once,
            say=say,
            torch=this_machine().torch,
        )
        found.save(folder / NAMES[0])
        write_process_csv(found, folder / NAMES[1])
        draw_process(found, folder / NAMES[2])
    console = wide_console()
    console.print(process_table(found))
    tell_written(console, out, NAMES)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def compare(before: Path, after: Path) -> None:
    """Say what has become worse or better between two runs; exit code 1 where something is worse."""
    need("reports", "lowtide bench --compare")
    from lowtide.experiments.process.compare import changes, changes_table
    from lowtide.experiments.process.record import ProcessMemory

    old, new = (ProcessMemory.load(path / NAMES[0] if path.is_dir() else path) for path in (before, after))
    found = changes(old, new)
    console = wide_console()
    if not found:
        console.print(f"{new.model}: nothing has changed by more than noise")
        return
    console.print(changes_table(new.model, found))
    worse = sum(change.is_worse for change in found)
    if worse:
        raise InputError(f"{worse} of {new.model}'s figures are worse than before, by more than noise: see above")
