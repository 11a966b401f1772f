"""`lowtide doctor`: what is here, and does what training stands on work on it?"""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.output import progress_line
from lowtide.errors import InputError
from lowtide.files import write_text


def doctor(
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda", help="What to look at; a GPU where there is one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report here too, as Markdown.")] = None,
    force: Annotated[bool, typer.Option(help="Overwrite it.")] = False,
) -> None:
    """Versions, device, compiler, and a test of every path on the device: equality, budget, swap, random numbers.

    The report can be pasted into an issue. The exit code is 1 where a check fails.
    """
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} is there already: choose another name, or give --force")
    from lowtide.experiments.doctor.run import device_called, examine

    chosen = device_called(device)
    with progress_line("doctor") as say:
        diagnosis = examine(chosen, say)
    report = diagnosis.markdown()
    typer.echo(report, nl=False)
    if out is not None:
        write_text(out, report)
    if not diagnosis.well:
        raise typer.Exit(1)
