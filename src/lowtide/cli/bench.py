"""`lowtide bench`: measure lowtide itself."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lowtide.cli.bench_budgets import budgets
from lowtide.cli.bench_capture import capture
from lowtide.cli.bench_compile import compiled
from lowtide.cli.bench_deeper import deeper
from lowtide.cli.bench_fit import fit
from lowtide.cli.bench_fit_public import fit_public
from lowtide.cli.bench_parallel import parallel
from lowtide.cli.bench_process import compare, process
from lowtide.cli.bench_startup import startup
from lowtide.cli.bench_swap import swap
from lowtide.cli.options import Force, Seed, TimeLimit
from lowtide.cli.output import progress_line
from lowtide.errors import InputError
from lowtide.experiments.planner.report import (
    SCALING_NAME,
    SCALING_PNG,
    TABLE_NAME,
    ablation_table,
    draw_scaling,
    planner_table,
    write_cases,
)
from lowtide.extras import need
from lowtide.files import results_directory
from lowtide.planning.benchmark import Asked, run_cases, scaling_problems, stages_named
from lowtide.planning.policies import POLICIES, policy
from lowtide.planning.problem_file import load_problem

app = typer.Typer(help="Measure lowtide itself.", no_args_is_help=True)
app.command("capture")(capture)
app.command("budgets")(budgets)
app.command("compile")(compiled)
app.command("fit")(fit)
app.command("fit-public")(fit_public)
app.command("process")(process)
app.command("parallel")(parallel)
app.command("startup")(startup)
app.command("deeper")(deeper)
app.command("swap")(swap)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    compared: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="A B", help="Two folders of `bench process`: is B worse than A?"),
    ] = None,
) -> None:
    """Measure lowtide itself."""
    if compared is not None:
        if context.invoked_subcommand is not None:
            raise InputError(f"--compare stands alone: leave {context.invoked_subcommand} out")
        compare(*compared)


Problems = Annotated[
    list[Path] | None, typer.Argument(metavar="[PROBLEM.json]...", help="lowtide-problem files.", show_default=False)
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for the CSV files.", show_default=False)]
Budgets = Annotated[str, typer.Option("--budgets", metavar="B,B,...", help="Bytes or shares of the unplanned peak.")]
Above = Annotated[bool, typer.Option("--above-residents", help="Shares count only the bytes above the residents.")]
Names = Annotated[str, typer.Option("--policies", metavar="P,P,...", help=f"Of {', '.join(POLICIES)}.")]
Scaling = Annotated[
    int, typer.Option("--scaling", metavar="OPS", min=0, help="Also time repeated blocks up to this many ops.")
]
Without = Annotated[
    str,
    typer.Option(
        "--without",
        metavar="STAGE,STAGE,...",
        help="Only the optimal policy, as it is and without each of these stages (A+B: both), by counted work alone.",
    ),
]
Counted = Annotated[
    bool,
    typer.Option("--counted", help="Only the optimal policy, by counted work alone: a busy machine will do."),
]


@app.command("planner")
def planner(
    out: Out,
    problem_files: Problems = None,
    budget_list: Budgets = "90%,80%,70%,60%,50%",
    above_residents: Above = False,
    policies: Names = "optimal,mutwo,chen",
    scaling: Scaling = 0,
    without: Without = "",
    counted: Counted = False,
    time_limit: TimeLimit = 60.0,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Run the policies on problems under budgets: the table problem, budget, policy, overhead, bound, gap, seconds."""
    if not problem_files and not scaling:
        raise InputError("nothing to measure: give problem files, --scaling OPS or both")
    if scaling:
        need("reports", "lowtide bench planner --scaling")
    names = tuple(name.strip() for name in policies.split(","))
    for name in names:
        policy(name)
    left_out = tuple(text.strip() for text in without.split(",")) if without else ()
    for text in left_out:
        stages_named(text)
    if left_out and scaling:
        raise InputError("--without goes with problem files: leave out --scaling")
    asked = Asked(tuple(budget_list.split(",")), above_residents, names, time_limit, seed, left_out, counted)
    problems = [load_problem(path) for path in problem_files or ()]
    for problem in problems:
        asked.budgets_of(problem)
    files = (TABLE_NAME,) * bool(problems) + (SCALING_NAME, SCALING_PNG) * bool(scaling)
    folder = results_directory(out, files, force=force)
    with progress_line("benchmark") as progress:
        cases = [case for problem in problems for case in run_cases(problem, asked, progress)]
    if problems:
        write_cases(folder / TABLE_NAME, cases)
        Console().print(ablation_table(cases) if left_out else planner_table(cases))
    if scaling:
        half = Asked(("50%",), True, names, time_limit, seed, counted=counted)
        with progress_line("scaling") as progress:
            curve = [case for p in scaling_problems(scaling) for case in run_cases(p, half, progress)]
        write_cases(folder / SCALING_NAME, curve)
        draw_scaling(folder / SCALING_PNG, curve)
        Console().print(planner_table(curve))
