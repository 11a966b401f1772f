"""Work instead of seconds: the search is cut by counts of what it has done, so that every run of it ends alike.

The parts charge what they do (LP iterations, edits of orders, steps looked at) in seconds of a modest machine. Whoever
asks how much is left gets the same answer on every run. The clock is only a guard behind it: where it cuts, the meter
says so, since then another run may differ.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

SHARE = 0.65
"""Share of a time limit that is given out as work; the rest is for machines that are slower or busy."""
GUARD = 0.95
"""Share of a time limit at which the clock cuts."""

STEP = 1e-6
"""Seconds that looking at one step of an order takes, about; other parts are multiples of it."""


@dataclass
class Meter:
    """How much work a search may do and has done, in seconds of the machine that the charges were fitted on."""

    whole: float = math.inf
    deadline: float = math.inf
    """On the clock of `time.perf_counter`."""
    done: float = 0.0
    cut: bool = False
    """Did the clock end anything?"""
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, time_limit: float) -> "Meter":
        """The work that fits a time limit, and the clock behind it."""
        return cls(SHARE * time_limit, time.perf_counter() + GUARD * time_limit)

    def charge(self, seconds: float) -> None:
        """Work was done."""
        self.done += seconds

    def left(self) -> float:
        """Work that may still be done; nothing once the clock has cut."""
        return -1.0 if self.late() else self.whole - self.done

    def late(self) -> bool:
        """Has the clock run out? Once it has, the search is no longer the same on every run."""
        self.cut = self.cut or time.perf_counter() > self.deadline
        return self.cut

    def spent(self) -> float:
        """Seconds on the clock since the meter was made."""
        return time.perf_counter() - self.began


_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


def meter() -> Meter:
    """The meter of the search that is running; one without limits where none is."""
    return _current.get() or Meter()


def charge(seconds: float) -> None:
    """Charge work to the search that is running."""
    meter().charge(seconds)


@contextmanager
def metered(by: Meter) -> Iterator[Meter]:
    """Everything inside charges its work to `by`."""
    token = _current.set(by)
    try:
        yield by
    finally:
        _current.reset(token)
