"""A progress bar for the minute that making a step takes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

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


class _Line(Progress):
    """One line that is written over, a few times a second at most: for notebooks, where there is no terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._width, self._last = out, 0, 0.0

    def say(self, what: str) -> None:
        self._out.write(f"\r{what:<{self._width}}")
        self._out.flush()
        self._width, self._last = len(what), monotonic()

    def measuring(self, done: int, total: int, what: str) -> None:
        if monotonic() - self._last > 0.2:
            self.say(f"measure, {what}: {100 * done // total} %")

    def planning(self, what: str) -> None:
        if monotonic() - self._last > 0.2:
            self.say(f"plan, {what}")


def in_notebook() -> bool:
    """Does what is written to stderr appear under a cell?"""
    return type(sys.stderr).__module__.startswith("ipykernel")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr that is gone when the work is done."""
    if in_notebook():
        line = _Line(sys.stderr)
        try:
            yield line
        finally:
            line.say("")
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Shown(bars)
