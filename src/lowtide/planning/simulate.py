"""What an order of ops costs: the only source of predicted figures. The rules are in docs/planner.md."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lowtide.planning.lanes import clock
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import Instances, instances


@dataclass(frozen=True, slots=True)
class Timeline:
    """Predicted bytes and time of one order."""

    live: tuple[int, ...]
    """Device bytes while each step runs, residents and its workspace included."""
    peak: int
    """The largest of `live`."""
    peak_step: int
    """The first step at the peak."""
    alive: tuple[tuple[int, int], ...]
    """(storage, bytes) alive at the peak, the largest first; with `resident` and `workspace` they sum to the peak."""
    resident: int
    """Bytes of the residents."""
    workspace: int
    """Workspace of the op at the peak."""
    time: float
    """Until all steps are done, lanes side by side."""
    overhead: float
    """`time` against the program order's, less one."""
    waited: float = 0.0
    """How long compute stood still for ops of other lanes."""


def simulate(problem: Problem, order: Sequence[int]) -> Timeline:
    """Run `order` in thought; a ScheduleError where it cannot run. Linear in the length of the order."""
    lived, live = _live(problem, order)
    peak = max(live)
    step = live.index(peak)
    sizes = problem.sizes
    alive = [
        (s, sizes[s])
        for s, born, last in zip(lived.storage, lived.born, lived.last, strict=True)
        if born <= step <= last
    ]
    alive.sort(key=lambda entry: (-entry[1], entry[0]))
    workspace = problem.workspaces[order[step]]
    ran = clock(problem, order) if problem.lanes else None
    time, waited = (ran.time, ran.waited) if ran else (time_of(problem, order), 0.0)
    overhead = overhead_of(problem, time)
    return Timeline(tuple(live), peak, step, tuple(alive), problem.resident_bytes, workspace, time, overhead, waited)


def peak_of(problem: Problem, order: Sequence[int]) -> int:
    """The peak alone, for searches that look at many orders."""
    return max(_live(problem, order)[1])


def time_of(problem: Problem, order: Sequence[int]) -> float:
    """The time until all steps are done; without lanes their sum, exact where times are whole numbers."""
    if problem.lanes:
        return clock(problem, order).time
    times = problem.times
    return sum([times[o] for o in order])


def overhead_of(problem: Problem, time: float) -> float:
    """`time` against the program order's, less one."""
    base = problem.base_time
    if base:
        return time / base - 1
    return math.inf if time else 0.0


def _live(problem: Problem, order: Sequence[int]) -> tuple[Instances, list[int]]:
    """The instances of `order` and the device bytes at each of its steps."""
    lived = instances(problem, order)
    sizes, workspaces = problem.sizes, problem.workspaces
    change = [0] * (len(order) + 2)
    change[0] = problem.resident_bytes
    for s, born, last in zip(lived.storage, lived.born, lived.last, strict=True):
        size = sizes[s]
        change[born] += size
        change[last + 1] -= size
    return lived, [bytes_ + workspaces[o] for bytes_, o in zip(accumulate(change), order, strict=False)]
