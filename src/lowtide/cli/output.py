"""What commands write to stdout when they are done."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WIDTH = 160
"""Of the tables where the output is no terminal."""


def wide_console() -> Console:
    """stdout; wide enough for tables where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def tell_written(console: Console, folder: Path, names: Iterable[str]) -> None:
    """Which files there are now."""
    console.print(Text("\nWritten:", style="bold"))
    for name in names:
        console.print(Text(f"  {folder / name}"), soft_wrap=True)
