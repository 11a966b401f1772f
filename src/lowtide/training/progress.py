"""A progress bar for the minute that making a step takes."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress:
    """Told what is being done; says nothing by itself."""

    def say(self, what: str) -> None:
        """A stage begins."""

    def measuring(self, done: int, total: int, what: str) -> None:
        """An op was measured."""

    def planning(self, what: str) -> None:
        """The planner does something else now."""


class _Shown(Progress):
    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("capture", total=None)

    def say(self, what: str) -> None:
        self._bars.update(self._task, description=what, total=None)

    def measuring(self, done: int, total: int, what: str) -> None:
        self._bars.update(self._task, description=f"measure, {what}", completed=done, total=total)

    def planning(self, what: str) -> None:
        self._bars.update(self._task, description=f"plan, {what}", total=None)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr that is gone when the work is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Shown(bars)
