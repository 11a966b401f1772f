"""`lowtide bench deeper`: what the start of a training takes when the same model has more layers."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from lowtide.cli.options import Force
from lowtide.cli.output import progress_line, wide_console
from lowtide.errors import InputError
from lowtide.experiments.deeper.report import CSV_NAME, PNG_NAME, draw_depths, write_depths
from lowtide.extras import need
from lowtide.files import results
from lowtide.units import parse_bytes

NAME = "deeper.json"


def deeper(
    out: Annotated[Path, typer.Option(help=f"Folder for {NAME}, {CSV_NAME} and {PNG_NAME}.")],
    layers: Annotated[str, typer.Option(help="Numbers of layers, with commas between them.")] = "12,24,48,96",
    budget: Annotated[str, typer.Option(metavar="BYTES|60%", help="As in lowtide train.")] = "75%",
    time_limit: Annotated[float | None, typer.Option(help="Seconds for all planning of one model.")] = None,
    force: Force = False,
) -> None:
    """Seconds of capture, measuring and planning of GPT-2, narrow, by its number of layers."""
    parse_bytes(budget, whole=1)
    counts = [int(text) for text in layers.split(",") if text.strip().isdecimal() and int(text) > 0]
    if not counts or len(counts) != len(layers.split(",")):
        raise InputError(f"--layers must be whole numbers above 0 with commas between them, not {layers!r}")
    for extra in ("models", "reports"):
        need(extra, "lowtide bench deeper")
    with results(out, (NAME, CSV_NAME, PNG_NAME), force=force) as folder, progress_line("bench deeper") as say:
        from lowtide.experiments.deeper.run import measure_deeper

        found = measure_deeper(counts, budget, time_limit, say)
        found.save(folder / NAME)
        write_depths(folder / CSV_NAME, found)
        draw_depths(folder / PNG_NAME, found)
    table = Table("layers", "ops", "capture", "provisional", "measure", "plan", "eager step", box=None)
    for depth in found.depths:
        times = (depth.capture_s, depth.provisional_s, depth.measure_s, depth.plan_s, depth.eager_s)
        table.add_row(str(depth.layers), str(depth.ops), *(f"{seconds:.2f} s" for seconds in times))
    wide_console().print(table)
