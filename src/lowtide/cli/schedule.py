"""`lowtide schedule`: plan a problem file under a budget."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lowtide.cli.options import Force, PolicyName, ProblemFile, Seed, TimeLimit, output_file
from lowtide.cli.output import progress_line
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.planning.policies import Plan, policy
from lowtide.planning.problem import Problem
from lowtide.planning.problem_file import load_problem
from lowtide.planning.schedule import save_schedule
from lowtide.planning.simulate import simulate
from lowtide.units import format_bytes, parse_bytes

Budget = Annotated[
    str,
    typer.Option(
        "--budget", metavar="BYTES|60%", help="Bytes, or a share of the program order's peak.", show_default=False
    ),
]
Out = Annotated[
    Path, typer.Option("--out", metavar="SCHEDULE.json", help="Where the schedule goes.", show_default=False)
]

Addresses = Annotated[
    Path | None,
    typer.Option("--addresses", metavar="PICTURE.png", help="Also draw where in memory everything of it can lie."),
]


def schedule(
    problem_file: ProblemFile,
    budget: Budget,
    out: Out,
    policy_name: PolicyName = "optimal",
    time_limit: TimeLimit = 60.0,
    seed: Seed = 0,
    addresses: Addresses = None,
    force: Force = False,
) -> None:
    """Plan a problem file: an order of its ops whose peak stays within the budget.

    Exit code 0 where such a plan was written, 3 where there is none or none was reached, 2 where the input is wrong.
    """
    chosen = policy(policy_name)
    problem = load_problem(problem_file)
    unplanned = simulate(problem, problem.program).peak
    limit = parse_bytes(budget, whole=unplanned, of="the program order's peak")
    output_file(out, force=force)
    if addresses is not None:
        need("reports", "lowtide schedule --addresses")
        output_file(addresses, force=force)
    with progress_line(f"planning {problem.name or problem_file.name}") as progress:
        plan = chosen.plan(problem, limit, time_limit=time_limit, seed=seed, progress=progress)
    try:
        save_schedule(plan.schedule, out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}") from None
    if addresses is not None:
        from lowtide.reporting.packing import draw_packing

        draw_packing(problem, plan.schedule.ops, addresses)
    Console().print(_table(problem, plan, limit, unplanned))


def _table(problem: Problem, plan: Plan, limit: int, unplanned: int) -> Table:
    """What was asked and what was reached."""
    table = Table(show_header=False, box=None)
    steps = len(plan.schedule.ops)
    rows = {
        "policy": plan.policy,
        "budget": f"{format_bytes(limit)}, {limit / unplanned:.1%} of the program order's peak",
        "peak": f"{format_bytes(plan.peak)} ({plan.peak} bytes)",
        "overhead": f"{plan.overhead:.4%}",
        "bound": f"{plan.bound:.4%}, so the gap is at most {plan.gap:.4%}" if plan.policy == "optimal" else "",
        "steps": f"{steps}, {steps - len(problem.program)} more than the program",
        "planned in": f"{plan.seconds:.2f} s",
        "note": plan.note,
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    return table
