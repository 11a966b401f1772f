"""The planner's benchmark as CSV and pictures."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from lowtide.files import write_text, writing
from lowtide.planning.benchmark import Case

TABLE_NAME = "planner.csv"
SCALING_NAME = "scaling.csv"
SCALING_PNG = "scaling.png"


def write_cases(path: Path, cases: Sequence[Case]) -> None:
    """Write the table, a row per case; what is not known stays empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        ["problem", "ops", "budget", "budget_bytes", "policy", "overhead", "bound", "gap", "infeasible", "seconds"]
    )
    for case in cases:
        asked = (case.problem, case.ops, case.label, case.budget, case.policy)
        table.writerow([*asked, case.overhead, case.bound, case.gap, int(case.infeasible), round(case.seconds, 3)])
    write_text(path, text.getvalue())


def draw_scaling(path: Path, cases: Sequence[Case]) -> None:
    """Planning time against ops, both on logarithmic axes, a line per policy."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for policy in dict.fromkeys(case.policy for case in cases):
        rows = [case for case in cases if case.policy == policy]
        axes.loglog([case.ops for case in rows], [max(case.seconds, 1e-3) for case in rows], marker="o", label=policy)
    axes.set_xlabel("ops")
    axes.set_ylabel("planning time (s)")
    axes.set_title("planning time of repeated blocks, half of the bytes above the residents left")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    with writing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
