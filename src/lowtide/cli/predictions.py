"""`lowtide predictions`: how good the predictions of all experiments were."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import Force
from lowtide.cli.output import tell_written, wide_console
from lowtide.experiments.predictions.run import predictions as gather
from lowtide.extras import need
from lowtide.files import results

NAMES = ("predictions.csv", "predictions.png")


def predictions(
    reports: Annotated[Path, typer.Argument(help="A folder with the results of experiments, at any depth.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help=f"Folder for {', '.join(NAMES)}.")],
    force: Force = False,
) -> None:
    """Predicted against measured peak and time of every planned case below a folder; the worst are named."""
    need("reports", "lowtide predictions")
    found = gather(reports)
    with results(out, NAMES, force=force) as folder:
        from lowtide.experiments.predictions.report import draw_predictions, predictions_table, write_predictions_csv

        write_predictions_csv(found, folder / NAMES[0])
        draw_predictions(found, folder / NAMES[1])
    console = wide_console()
    console.print(predictions_table(found))
    tell_written(console, out, NAMES)
