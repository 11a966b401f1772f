"""What commands say: on stderr one line that changes while they run, on stdout what they have written."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from lowtide.planning.policies import Progress

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


@contextmanager
def progress_line(title: str) -> Iterator[Progress]:
    """A Progress that shows `title` and the last thing it was told; nothing where stderr is no terminal."""
    console = Console(stderr=True)
    with console.status(escape(title)) as status:
        yield lambda message: status.update(f"{escape(title)}: {escape(message)}")
