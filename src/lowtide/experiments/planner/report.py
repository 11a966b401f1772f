"""The planner's benchmark as CSV, table and picture."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lowtide.files import write_csv, writing
from lowtide.planning.benchmark import Case

TABLE_NAME = "planner.csv"
SCALING_NAME = "scaling.csv"
SCALING_PNG = "scaling.png"


def write_cases(path: Path, cases: Sequence[Case]) -> None:
    """Write the table, a row per case; what is not known stays empty."""
    columns = (
        "problem",
        "ops",
        "budget",
        "budget_bytes",
        "policy",
        "overhead",
        "bound",
        "gap",
        "infeasible",
        "seconds",
    )
    rows = (
        [
            *(case.problem, case.ops, case.label, case.budget, case.policy),
            *(case.overhead, case.bound, case.gap, int(case.infeasible), round(case.seconds, 3)),
        ]
        for case in cases
    )
    write_csv(path, columns, rows)


def draw_scaling(path: Path, cases: Sequence[Case]) -> None:
    """Planning time against ops, and beside it how far the plan may be from the best: a line per policy."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("repeated blocks, half of the bytes above the residents left")
    time, gap = figure.subplots(1, 2)
    for policy in dict.fromkeys(case.policy for case in cases):
        rows = [case for case in cases if case.policy == policy]
        time.plot([case.ops for case in rows], [case.seconds for case in rows], marker="o", label=policy)
        known = [case for case in rows if case.gap is not None]
        gap.plot([c.ops for c in known], [100 * (c.gap or 0.0) for c in known], marker="o", label=policy)
    time.set_ylabel("planning time (s)")
    gap.set_ylabel("overhead above the certified bound (points)")
    for axes in (time, gap):
        axes.set_xscale("log")
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.set_xlabel("ops")
        axes.grid(alpha=0.3, which="both")
        axes.legend(loc="lower left")
    with writing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def planner_table(cases: Sequence[Case]) -> Table:
    """One row per problem, budget and policy."""
    table = Table("problem", "ops", "budget", "policy", "overhead", "bound", "gap", "seconds", box=None)
    for case in cases:
        reached = "not reached" if case.overhead is None else f"{case.overhead:.4%}"
        bound = "-" if case.bound is None else f"{case.bound:.4%}"
        table.add_row(
            case.problem,
            str(case.ops),
            case.label,
            case.policy,
            "infeasible" if case.infeasible else reached,
            "none fits" if case.infeasible else bound,
            "-" if case.gap is None else f"{case.gap:.4%}",
            f"{case.seconds:.2f}",
        )
    return table


def ablation_table(cases: Sequence[Case]) -> Table:
    """Overhead and bound in per cent, a row per stage left out; filled in where they differ from the first row."""
    cells: dict[str, dict[str, str]] = {}
    for case in cases:
        reached = (
            "not reached" if case.overhead is None else f"{100 * case.overhead:.3f}, {100 * (case.bound or 0):.3f}"
        )
        column = cells.setdefault(f"{case.problem} {case.label}", {})
        column[case.policy] = "infeasible" if case.infeasible else reached
    whole, *others = dict.fromkeys(case.policy for case in cases)
    table = Table("without", *cells, box=None)
    table.add_row("nothing", *(column[whole] for column in cells.values()))
    for name in others:
        different = ("" if column[name] == column[whole] else column[name] for column in cells.values())
        table.add_row(name.removeprefix("optimal without "), *different)
    return table
