"""Work instead of seconds: the search is cut by counts of what it has done, so that every run of it ends the same way.

The parts charge what they do (LP iterations, edits of orders, steps looked at) in seconds of a modest machine. Whoever
asks how much is left gets the same answer on every run. The clock is only a guard behind it: where it cuts, the
allowance says so, since then another run may differ.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from lowtide.planning.optimal.settings import SETTINGS


@dataclass
class Allowance:
    """How much work a search may do and has done, in seconds of the machine that the charges were fitted on."""

    whole: float = math.inf
    deadline: float = math.inf
    """On the clock of `time.perf_counter`."""
    done: float = 0.0
    kept: float = 0.0
    """Reserves that are not to be had at present."""
    cut: bool = False
    """Did the clock end anything?"""
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, time_limit: float) -> "Allowance":
        """The work that fits a time limit, and the clock behind it."""
        return cls(SETTINGS.given_out * time_limit, time.perf_counter() + SETTINGS.guard * time_limit)

    def charge(self, seconds: float) -> None:
        """Work was done."""
        self.done += seconds

    def left(self) -> float:
        """Work that may still be done; nothing once the clock has cut."""
        return -1.0 if self.late() else self.whole - self.kept - self.done

    @contextmanager
    def reserve(self, share: float) -> Iterator[None]:
        """Inside, a share of all the work is not to be had: it is for what comes after."""
        self.kept += share * self.whole
        try:
            yield
        finally:
            self.kept -= share * self.whole

    def late(self) -> bool:
        """Has the clock run out? Once it has, the search is no longer the same on every run."""
        self.cut = self.cut or time.perf_counter() > self.deadline
        return self.cut

    def spent(self) -> float:
        """Seconds on the clock since the meter was made."""
        return time.perf_counter() - self.began


_current: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def allowance() -> Allowance:
    """The meter of the search that is running; one without limits where none is."""
    return _current.get() or Allowance()


def charge(seconds: float) -> None:
    """Charge work to the search that is running."""
    allowance().charge(seconds)


@contextmanager
def working_within(by: Allowance) -> Iterator[Allowance]:
    """Everything inside charges its work to `by`."""
    token = _current.set(by)
    try:
        yield by
    finally:
        _current.reset(token)
