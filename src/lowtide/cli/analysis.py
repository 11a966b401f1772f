"""`lowtide analysis`: the experimental analysis as a page, from the raw files."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import Force, output_file
from lowtide.cli.output import tell_written, wide_console
from lowtide.experiments.predictions import predictions
from lowtide.extras import need
from lowtide.files import write_text


def analysis(
    reports: Annotated[Path, typer.Argument(help="A folder with profiles and results of experiments, at any depth.")],
    out: Annotated[Path, typer.Option(metavar="FILE.md", help="The page to write.")],
    force: Force = False,
) -> None:
    """Write the analysis of all records below a folder as Markdown; no number in it is typed by hand."""
    need("reports", "lowtide analysis")
    output_file(out, force=force)
    found = predictions(reports)
    from lowtide.reporting.analysis.page import analysis_page

    write_text(out, analysis_page(reports.absolute(), found, out.absolute()))
    tell_written(wide_console(), out.parent, (out.name,))
