"""`lowtide largest`: out of memory, then not; the largest batch under a hard limit, eagerly and with a plan."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.groups import grouped
from lowtide.cli.options import Chosen, Force, PolicyName, TimeLimit, at_least, check_budget
from lowtide.cli.output import progress_line, tell_written, wide_console
from lowtide.errors import InputError
from lowtide.experiments.case import CaseSettings, source_hash
from lowtide.experiments.largest.run import find_largest
from lowtide.experiments.machine import this_machine
from lowtide.extras import need
from lowtide.files import results
from lowtide.units import parse_bytes

NAMES = ("largest.json", "largest.csv", "largest.png")


@grouped()
def largest(
    chosen: Chosen,
    memory_limit: Annotated[str, typer.Option(metavar="BYTES", help="Cap on each process, as `lowtide train` has it.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    budget: Annotated[
        str,
        typer.Option(
            metavar="P%", help="Of what eager needs, at the smallest batch that fails eagerly.", callback=check_budget
        ),
    ] = "68%",
    most: Annotated[int, typer.Option(metavar="N", help="Try no larger batch.", callback=at_least(1))] = 1024,
    within: Annotated[
        float, typer.Option(metavar="P", help="Per cent of a batch to which the search is exact; 0: to one sample.")
    ] = 0.0,
    policy: PolicyName = "optimal",
    time_limit: TimeLimit = 20.0,
    force: Force = False,
) -> None:
    """Find the largest batch that trains under a hard memory limit, eagerly and with a plan; doubling, then bisection.

    A trial takes two steps in a process of its own. Then, at the smallest batch that runs out of memory eagerly: what
    eager would need, and what the plan takes.
    """
    need("reports", "lowtide largest")
    limit = parse_bytes(memory_limit)
    if not 0 <= within < 100:
        raise InputError(f"--within must be from 0 to below 100, not {within}")
    first = CaseSettings(
        source=source_hash(chosen.model),
        batch_size=1,
        planned=False,
        budget=None,
        policy=policy,
        time_limit=time_limit,
        steps=1,
        warmup=1,
        op_runs=0,
        memory_limit_B=limit,
        machine=this_machine(),
        **asdict(chosen),
    )
    with results(out, NAMES, force=force) as folder:
        with progress_line("largest batch") as say:
            found = find_largest(first, budget, most=most, within=within / 100, say=say)
        from lowtide.experiments.largest.report import draw_largest, largest_table, write_largest_csv

        found.save(folder / NAMES[0])
        write_largest_csv(found, folder / NAMES[1])
        draw_largest(found, folder / NAMES[2])
    console = wide_console()
    console.print(largest_table(found))
    tell_written(console, out, NAMES)
