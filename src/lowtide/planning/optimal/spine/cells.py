"""Groups combined from the first link on, compiled: what lies above and at the start, and the least time for it.

States fall into cells by their bytes; of those in one cell only the least time, the least bytes above and the least
bytes at the start are kept, each for itself, which no state beats. So cells make the bound smaller, never wrong.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.compiled import entry

Times = NDArray[np.float64]
Sizes = NDArray[np.int64]


class Cells(NamedTuple):
    """Open groups: [cell of the bytes above, cell of the bytes at the start]. Closed ones lie in the first column."""

    time: Times
    above: Sizes
    at_start: Sizes


class Costs(NamedTuple):
    """Choices of a link."""

    time: Times
    above: Sizes
    at_start: Sizes


class Rests(NamedTuple):
    """What else lies at a start, and the time it costs to have no more."""

    bytes: Sizes
    time: Times


NOTHING = Rests(np.zeros(1, np.int64), np.zeros(1))
"""Where a group goes on: its start is that of a later link."""


def empty(cells: int) -> Cells:
    """No state at all."""
    shape = (cells, cells)
    return Cells(np.full(shape, np.inf), np.zeros(shape, np.int64), np.zeros(shape, np.int64))


@entry
def combine(source: Cells, costs: Costs, rests: Rests, room: int, unit: int, ends: bool, into: Cells) -> None:
    """Groups with one more link, where all fits at their start.

    Where it `ends` them, the next group begins with what lies above; what lay at the start is no longer asked for.
    """
    for i in range(source.time.shape[0]):
        for j in range(source.time.shape[1]):
            if source.time[i, j] == np.inf:
                continue
            for c in range(costs.time.size):
                above = source.above[i, j] + costs.above[c]
                at_start = source.at_start[i, j] + costs.at_start[c]
                if above > room:
                    continue
                a, b = above // unit, 0 if ends else at_start // unit
                for r in range(rests.time.size):
                    if at_start + rests.bytes[r] > room:
                        continue
                    if into.time[a, b] == np.inf:
                        into.above[a, b], into.at_start[a, b] = above, at_start
                    into.above[a, b] = min(into.above[a, b], above)
                    into.at_start[a, b] = min(into.at_start[a, b], at_start)
                    into.time[a, b] = min(into.time[a, b], source.time[i, j] + costs.time[c] + rests.time[r])


@entry
def sift(cells: Cells, least: Times) -> None:
    """Give up states that one of fewer bytes in both counts beats; `least` is room to work in, one entry per cell."""
    least[:] = np.inf
    for i in range(cells.time.shape[0]):
        for j in range(cells.time.shape[1] - 1, 0, -1):
            if least[j - 1] <= cells.time[i, j]:
                cells.time[i, j] = np.inf
        lowest = np.inf
        for j in range(cells.time.shape[1]):
            lowest = min(lowest, cells.time[i, j])
            least[j] = min(least[j], lowest)


def begun(closed: Cells) -> Cells:
    """Groups that begin where others ended: so far nothing lies at their start but what lies above."""
    return Cells(closed.time, closed.above, closed.above.copy())
