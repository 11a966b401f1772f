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
    peaks = [plan.peak / 2**30 for plan in plans]
    overheads = [100 * plan.overhead for plan in plans]
    bounds = [100 * plan.bound for plan in plans]
    axes.plot(peaks, overheads, marker="o", label="plan")
    axes.plot(peaks, bounds, linestyle="--", marker="_", label="no schedule can be below")
    axes.fill_between(peaks, bounds, overheads, alpha=0.15)
    axes.set_xlabel("peak (GiB)")
    axes.set_ylabel("overhead (%)")
    axes.set_title(f"{name}: peak against time")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format="png", dpi=150)
