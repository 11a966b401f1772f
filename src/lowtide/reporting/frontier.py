"""Peak against time: the plans of a frontier as CSV and as a picture with the certified bound drawn in."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import InputError, shortened
from lowtide.files import write_csv
from lowtide.planning.policies import Plan

CSV_NAME = "frontier.csv"
PNG_NAME = "frontier.png"


def write_frontier(folder: Path, name: str, plans: Sequence[Plan]) -> None:
    """Write `frontier.csv` and `frontier.png` into `folder`."""
    columns = ("peak_bytes", "time", "overhead", "bound", "gap", "seconds", "steps")
    rows = [(p.peak, p.time, p.overhead, p.bound, p.gap, round(p.seconds, 3), len(p.schedule.ops)) for p in plans]
    write_csv(folder / CSV_NAME, columns, rows)
    _draw(folder / PNG_NAME, name, plans)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One plan of a frontier."""

    peak_B: int
    overhead: float
    bound: float
    """No schedule within this peak has less overhead."""
    seconds: float
    """What planning took."""


def read_frontier(path: Path) -> tuple[FrontierPoint, ...]:
    """The plans that `write_frontier` wrote, the highest peak last."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            points = [
                FrontierPoint(int(row["peak_bytes"]), *(float(row[name]) for name in ("overhead", "bound", "seconds")))
                for row in csv.DictReader(file)
            ]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no table of `lowtide frontier`: {shortened(str(error))}") from None
    if not points:
        raise InputError(f"{path} has no rows: make it again with `lowtide frontier`")
    return tuple(sorted(points, key=lambda point: point.peak_B))


def _draw(path: Path, name: str, plans: Sequence[Plan]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from lowtide.reporting.style import save_png

    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
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
    save_png(figure, path)
