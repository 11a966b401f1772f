"""The command line: one module per command in `lowtide.cli`, library errors become one line and exit code 2."""

import signal
import sys
from types import FrameType

import typer

from lowtide.cli.profile import profile
from lowtide.errors import LowtideError

app = typer.Typer(
    name="lowtide",
    help="PyTorch training that fits a number of bytes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """PyTorch training that fits a number of bytes."""


app.command()(profile)


def _leave(number: int, _frame: FrameType | None) -> None:
    """Leave through the clean-up of temporary files, as Ctrl-C does."""
    sys.exit(128 + number)


def main() -> None:
    """Run the command line; a LowtideError becomes one line on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        app()
    except LowtideError as error:
        sys.stderr.write(f"lowtide: {error}\n")
        sys.exit(2)
