"""`lowtide bench fit-public`: what `lowtide fit` says of runs that others have published."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import Force
from lowtide.cli.output import progress_line, wide_console
from lowtide.extras import need
from lowtide.files import results

FILE_NAME = "public.json"


def fit_public(
    out: Annotated[Path, typer.Option(help="Folder for public.json.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Some of the runs; all without.")
    ] = None,
    force: Force = False,
) -> None:
    """Predict published training runs, memory and rate, and say how far off that is. Nothing is measured."""
    need("models", "lowtide bench fit-public")
    from lowtide.experiments.public.report import public_table
    from lowtide.experiments.public.run import predict

    with results(out, (FILE_NAME,), force=force) as folder, progress_line("bench fit-public") as say:
        found = predict(names or (), say=say)
        found.save(folder / FILE_NAME)
    wide_console().print(public_table(found))
