"""What a running command says on stderr: one line that changes, and nothing where stderr is no terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from lowtide.planning.policies import Progress


@contextmanager
def progress_line(title: str) -> Iterator[Progress]:
    """A Progress that shows `title` and the last thing it was told."""
    console = Console(stderr=True)
    with console.status(escape(title)) as status:
        yield lambda message: status.update(f"{escape(title)}: {escape(message)}")
