"""Peak against time: the plans of a frontier as CSV and as a picture with the certified bound drawn in."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from lowtide.files import write_text, writing
from lowtide.planning.policies import Plan

CSV_NAME = "frontier.csv"
PNG_NAME = "frontier.png"


def write_frontier(folder: Path, name: str, plans: Sequence[Plan]) -> None:
    """Write `frontier.csv` and `frontier.png` into `folder`."""
    write_text(folder / CSV_NAME, _csv(plans))
    with writing(folder / PNG_NAME) as temporary:
        _draw(temporary, name, plans)


def _csv(plans: Sequence[Plan]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["peak_bytes", "time", "overhead", "bound", "gap", "seconds", "steps"])
    for plan in plans:
        figures = (plan.time, plan.overhead, plan.bound, plan.gap, round(plan.seconds, 3))
        table.writerow([plan.peak, *figures, len(plan.schedule.ops)])
    return text.getvalue()


def _draw(path: Path, name: str, plans: Sequence[Plan]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    rising = sorted(plans, key=lambda plan: plan.peak)
    unit, name_of_unit = (2**30, "GiB") if rising[-1].peak >= 2**30 else (2**20, "MiB")
    peaks = [plan.peak / unit for plan in rising]
    # Stairs, not slopes: a plan serves every larger budget, a bound holds for every smaller one.
    axes.step(peaks, [100 * plan.overhead for plan in rising], where="post", marker="o", label="plan")
    axes.step(
        peaks, [100 * plan.bound for plan in rising], where="pre", linestyle="--", label="no schedule can be below"
    )
    axes.set_xlabel(f"peak ({name_of_unit})")
    axes.set_ylabel("overhead (%)")
    axes.set_title(f"{name}: peak against time")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="png", dpi=150)
