"""`lowtide report`: one self-contained page, and a trace, from what other commands wrote."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.options import Force
from lowtide.cli.output import tell_written, wide_console
from lowtide.extras import need
from lowtide.files import results
from lowtide.pages.report.inputs import read_inputs

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...",
        help="Folders that `lowtide profile`, `train --out`, `frontier` or `sweep` wrote, of one model.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for the page; the first DIR if left out.")
]


def report(folders: Folders, out: Out = None, force: Force = False) -> None:
    """Write report.html, which opens offline in any browser, and trace.json for Perfetto."""
    need("reports", "lowtide report")
    found = read_inputs(folders)
    # matplotlib's colours take a while to import: not before the inputs are known to be right.
    from lowtide.pages.report.page import report_files, write_report

    folder, names = out or folders[0], report_files(found)
    with results(folder, names, force=force) as temporary:
        write_report(found, temporary)
    tell_written(wide_console(), folder, names)
