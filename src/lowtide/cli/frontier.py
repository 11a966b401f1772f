"""`lowtide frontier`: every trade of peak against time that the planner finds."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lowtide.cli.options import Force, ProblemFile, Seed, check_time_limit
from lowtide.cli.output import progress_line
from lowtide.extras import need
from lowtide.files import results_directory
from lowtide.planning.policies import frontier_policy
from lowtide.planning.problem_file import load_problem
from lowtide.reporting.frontier import CSV_NAME, PNG_NAME, write_frontier
from lowtide.units import format_bytes

Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="The folder for frontier.csv and frontier.png.", show_default=False)
]
Points = Annotated[int, typer.Option("--points", metavar="N", min=2, max=200, help="Plans at most.")]
WholeTimeLimit = Annotated[
    float,
    typer.Option("--time-limit", metavar="S", help="Seconds for the whole frontier.", callback=check_time_limit),
]


def frontier(
    problem_file: ProblemFile,
    out: Out,
    points: Points = 12,
    time_limit: WholeTimeLimit = 600.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Plan a problem file from no budget down to the least peak reached: CSV, and PNG with the bound drawn in."""
    need("reports", "lowtide frontier")
    problem = load_problem(problem_file)
    folder = results_directory(out, (CSV_NAME, PNG_NAME), force=force)
    with progress_line(f"frontier of {problem.name or problem_file.name}") as progress:
        plans = frontier_policy().frontier(problem, points=points, time_limit=time_limit, seed=seed, progress=progress)
    write_frontier(folder, problem.name or problem_file.stem, plans)
    table = Table("peak", "overhead", "bound", "gap", "seconds", box=None)
    for plan in plans:
        figures = (f"{plan.overhead:.3%}", f"{plan.bound:.3%}", f"{plan.gap:.3%}", f"{plan.seconds:.1f}")
        table.add_row(format_bytes(plan.peak), *figures)
    Console().print(table)
