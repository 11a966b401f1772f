"""`lowtide bench fit`: how far the estimates of `lowtide fit` are from measured steps, on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lowtide.cli.options import Force, OptimizerName
from lowtide.cli.output import progress_line
from lowtide.errors import InputError
from lowtide.files import results

FILE_NAME = "calibration.json"


def fit(
    models: Annotated[list[str], typer.Argument(metavar="MODEL:BATCH...", help="For example bert-base:8 gpt2:4.")],
    out: Annotated[Path, typer.Option(help="Folder for calibration.json, which `lowtide fit --device` takes.")],
    runs: Annotated[int, typer.Option(help="Measured runs of each op.")] = 3,
    optimizer: OptimizerName = "adam",
    force: Force = False,
) -> None:
    """Error of the estimated times by kind of op and for whole steps, and of the peaks; a better clock for `fit`."""
    if runs < 1:
        raise InputError(f"--runs must be at least 1, not {runs}")
    asked = [text.rpartition(":") for text in models]
    for name, _, batch in asked:
        if not name or not batch.isdecimal():
            raise InputError(f"write each model with its batch size, for example bert-base:8, not {name or batch!r}")
    with results(out, (FILE_NAME,), force=force) as folder, progress_line("bench fit") as say:
        from lowtide.experiments.calibration.report import kinds_table, steps_table
        from lowtide.experiments.calibration.run import calibrate
        from lowtide.models import build, make_optimizer

        trainings = [build(name, int(batch)) for name, _, batch in asked]
        found = calibrate(trainings, lambda m: make_optimizer(optimizer, m, 1e-3), runs=runs, say=say)
        found.save(folder / FILE_NAME)
    for table in (kinds_table(found), steps_table(found)):
        Console().print(table)
