"""The start by the number of layers, as CSV and picture."""

from dataclasses import astuple, fields
from pathlib import Path

from lowtide.experiments.deeper.record import Deeper, Depth
from lowtide.files import write_csv, writing

CSV_NAME = "deeper.csv"
PNG_NAME = "deeper.png"


def write_depths(path: Path, found: Deeper) -> None:
    """A row for each number of layers."""
    write_csv(path, [field.name for field in fields(Depth)], [list(astuple(depth)) for depth in found.depths])


def draw_depths(path: Path, found: Deeper) -> None:
    """Seconds of each stage against layers, and the same for one layer, which a straight line keeps level."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"GPT-2, narrow, at {found.budget}: what the start takes")
    whole, each = figure.subplots(1, 2)
    layers = [depth.layers for depth in found.depths]
    for stage in ("capture", "provisional", "measure", "plan"):
        seconds = [float(getattr(depth, f"{stage}_s")) for depth in found.depths]
        whole.plot(layers, seconds, marker="o", label=stage)
        each.plot(layers, [1000 * s / n for s, n in zip(seconds, layers, strict=True)], marker="o", label=stage)
    whole.set_ylabel("seconds")
    each.set_ylabel("milliseconds a layer")
    for axes in (whole, each):
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.set_xlabel("layers")
        axes.grid(alpha=0.3)
        axes.legend()
    with writing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
