"""The bar of a long experiment: what is being done, and an estimate of what is left."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text


class WorkBar:
    """Counts work in any unit; the time that is left is that of the work that is left at the speed so far."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task
        self._began = perf_counter()
        self._done, self._total = 0.0, 0.0

    def expect(self, total: float) -> None:
        """All the work that there is."""
        self._total = total
        self._bars.update(self._task, total=total)

    def did(self, what: str, work: float) -> None:
        """Some of it is done."""
        self._done += work
        self._bars.update(self._task, completed=self._done, description=f"{what} · {self.left}")

    @property
    def left(self) -> str:
        """How long it will still take, about."""
        if not self._done:
            return "time left not known yet"
        seconds = (perf_counter() - self._began) * (self._total - self._done) / self._done
        return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {max(0.0, seconds):.0f} s left"

    def say(self, line: str) -> None:
        """A line that stays, also where stderr is no terminal."""
        self._bars.console.print(Text(line), soft_wrap=True)


@contextmanager
def work_bar(title: str) -> Iterator[WorkBar]:
    """A bar on stderr: stdout is for what was found."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield WorkBar(bars, bars.add_task(title, total=None))
