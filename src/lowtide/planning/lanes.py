"""Lanes beside compute: when each step runs, what waits for what, and until when an order must hold what is copied.

An op of another lane starts at its place in the order and goes on beside compute, behind the ops of its own lane that
started before it. A compute op that reads what it writes waits for it. That wait is all an order knows of other lanes,
so bytes depend on the order alone: a slow lane makes compute wait longer, and never holds more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planning.problem import COMPUTE, Problem


@dataclass(frozen=True, slots=True)
class Clock:
    """When the steps of an order run, if every op takes its time."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    waits: tuple[float, ...]
    """Per step: how long compute stood still before it, for an op of another lane."""
    time: float
    """When compute and all lanes are done."""
    waited: float
    """How long compute stood still in all, also behind the last step."""


def clock(problem: Problem, order: Sequence[int]) -> Clock:
    """Run `order`, which is known to be valid, by the clock."""
    ops, reads, writes, times = problem.ops, problem.reads, problem.writes, problem.times
    there = [0.0] * len(problem.storages)
    free: dict[str, float] = dict.fromkeys(problem.lanes, 0.0)
    now = 0.0
    starts: list[float] = []
    ends: list[float] = []
    waits: list[float] = []
    for o in order:
        start = max([now, *(there[s] for s in reads[o])])
        lane = ops[o].lane
        if lane == COMPUTE:
            waits.append(start - now)
            now = end = start + times[o]
        else:
            start = max(start, free[lane])
            waits.append(0.0)
            free[lane] = end = start + times[o]
        starts.append(start)
        ends.append(end)
        for s in writes[o]:
            there[s] = end
    done = max([now, *free.values()])
    return Clock(tuple(starts), tuple(ends), tuple(waits), done, sum(waits) + done - now)


class Pending:
    """The copies that an order has started and not yet waited for, and the instances that they need until then."""

    def __init__(self) -> None:
        self._started: dict[int, list[int]] = {}

    def start(self, step: int, touched: list[int]) -> None:
        """A copy starts at `step` on the instances it reads and writes."""
        self._started[step] = touched

    def wait(self, step: int) -> list[int]:
        """Compute waits for the copy that was started at `step`: its instances, where nothing has waited before."""
        return self._started.pop(step, [])

    def never_waited_for(self) -> list[int]:
        """The instances of copies that nothing waits for: they are needed to the end."""
        return [instance for touched in self._started.values() for instance in touched]
