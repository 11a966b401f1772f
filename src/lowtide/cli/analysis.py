"""`lowtide analysis`: the experimental analysis as a page, from the raw files."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import Force, output_file
from lowtide.cli.output import tell_written, wide_console
from lowtide.errors import InputError
from lowtide.experiments.predictions.run import predictions
from lowtide.extras import need
from lowtide.files import write_text


def analysis(
    reports: Annotated[Path, typer.Argument(help="A folder with profiles and results of experiments, at any depth.")],
    out: Annotated[Path, typer.Option(metavar="FILE.md", help="The page to write.")],
    tables: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.md", help="Write the marked tables in this page anew too; may be given again."),
    ] = None,
    force: Force = False,
) -> None:
    """Write the analysis of all records below a folder as Markdown; no number in it is typed by hand."""
    need("reports", "lowtide analysis")
    output_file(out, force=force)
    found = predictions(reports)
    from lowtide.pages.analysis.page import analysis_page
    from lowtide.pages.readme import with_tables

    pages = {path: with_tables(_text(path), reports) for path in tables or ()}
    write_text(out, analysis_page(reports.absolute(), found, out.absolute()))
    for path, text in pages.items():
        write_text(path, text)
    for path in (out, *pages):
        tell_written(wide_console(), path.parent, (path.name,))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
