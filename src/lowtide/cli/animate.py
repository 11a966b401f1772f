"""`lowtide animate`: moving pictures of what lowtide sees and does."""

from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.animate_saved import saved
from lowtide.cli.options import Force, Frames, check_gif
from lowtide.cli.output import tell_written, wide_console
from lowtide.errors import InputError
from lowtide.extras import need
from lowtide.files import results
from lowtide.pages.report.inputs import PROFILE_NAME
from lowtide.records.profile import Profile

app = typer.Typer(help="Moving pictures of what lowtide sees and does.", no_args_is_help=True)
app.command("saved")(saved)


@app.callback()
def _root() -> None:
    """Moving pictures of what lowtide sees and does."""


@app.command("profiler")
def profiler(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `lowtide profile` wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE.gif", help="Where the picture goes.", show_default=False)],
    frames: Frames = 80,
    force: Force = False,
) -> None:
    """The profiler walking through one step: memory builds up, with the op and module of the moment."""
    need("reports", "lowtide animate")
    check_gif(out, frames)
    if not (folder / PROFILE_NAME).is_file():
        raise InputError(f"there is no {PROFILE_NAME} in {folder}: give a folder that `lowtide profile` wrote")
    profile = Profile.load(folder / PROFILE_NAME)
    from lowtide.reporting.profiler_demo import draw_profiler_demo

    with results(out.parent, (out.name,), force=force) as temporary:
        draw_profiler_demo(profile, temporary / out.name, frames=frames)
    tell_written(wide_console(), out.parent, (out.name,))
