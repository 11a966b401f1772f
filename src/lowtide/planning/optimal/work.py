"""Work instead of seconds: the search is cut by counts of what it has done, so that every run of it ends the same way.

The parts charge what they do (LP iterations, edits of orders, steps looked at) in seconds of a modest machine. Whoever
asks how much is left gets the same answer on every run. The clock is only a guard behind it: where it cuts, the
meter says so, since then another run may differ.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from lowtide.planning.optimal.settings import SETTINGS


@dataclass
class Meter:
    """What a search has done, in seconds of the machine that the charges were fitted on, and the clock beside it."""

    deadline: float = math.inf
    """On the clock of `time.perf_counter`."""
    done: float = 0.0
    cut: bool = False
    """Did the clock end anything?"""
    began: float = field(default_factory=time.perf_counter)

    def late(self) -> bool:
        """Has the clock run out? Once it has, the search is no longer the same on every run."""
        self.cut = self.cut or time.perf_counter() > self.deadline
        return self.cut

    def spent(self) -> float:
        """Seconds on the clock since the meter was made."""
        return time.perf_counter() - self.began


@dataclass(frozen=True)
class Allowance:
    """How much work a part of a search may do: all of the search's, less what is kept for others."""

    whole: float = math.inf
    meter: Meter = field(default_factory=Meter)
    kept: float = 0.0

    @classmethod
    def of(cls, time_limit: float, *, clock: bool = True) -> "Allowance":
        """The work that fits a time limit; with the clock behind it, if asked for."""
        deadline = time.perf_counter() + SETTINGS.guard * time_limit if clock else math.inf
        return cls(SETTINGS.given_out * time_limit, Meter(deadline))

    def left(self) -> float:
        """Work that may still be done; nothing once the clock has cut."""
        return -1.0 if self.meter.late() else self.whole - self.kept - self.meter.done

    def keeping(self, share: float) -> "Allowance":
        """The same for a part that leaves a share of all the work to what comes after it."""
        return replace(self, kept=self.kept + share * self.whole)


_current: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def allowance() -> Allowance:
    """What the part that is running may do; anything where none is."""
    return _current.get() or Allowance()


def charge(seconds: float) -> None:
    """Charge work to the search that is running."""
    allowance().meter.done += seconds


def charge_steps(count: float) -> None:
    """Charge work that is like looking at so many steps of an order."""
    charge(SETTINGS.step * count)


@contextmanager
def working_within(given: Allowance) -> Iterator[Allowance]:
    """Everything inside does its work by what it is given."""
    token = _current.set(given)
    try:
        yield given
    finally:
        _current.reset(token)
