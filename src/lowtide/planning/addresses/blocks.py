"""What has to get an address: sizes and lifetimes, from the simulator's own account of an order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.problem import Problem
from lowtide.planning.schedule import instances

ALIGNMENT = 64
"""Bytes: as torch aligns its CPU memory, and a line of the cache."""
WORKSPACE = -1
"""In the place of a storage."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """Pieces of memory, each with its bytes and the time in which it is in use: from `begin` to before `end`."""

    begin: Ints
    end: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def rounded(self) -> Ints:
        """Bytes in whole units of the alignment, at least one."""
        return np.asarray(np.maximum(1, -(-self.bytes // ALIGNMENT)) * ALIGNMENT)

    @property
    def load(self) -> int:
        """The most bytes in use at once, in whole units of the alignment: nothing can be placed in less."""
        change = np.zeros(int(self.end.max(initial=0)) + 1, dtype=np.int64)
        np.add.at(change, self.begin, self.rounded)
        np.subtract.at(change, self.end, self.rounded)
        return int(np.cumsum(change).max(initial=0))


def blocks_of(problem: Problem, order: Sequence[int]) -> tuple[Blocks, list[int]]:
    """All that `order` takes beside the residents, and which storage each block is, or WORKSPACE; a step is a unit of
    time.

    An op that runs in place makes no new block: its output lives on where its argument did.
    """
    lived = instances(problem, order)
    newest: dict[int, int] = {}
    storage: list[int] = []
    begin: list[int] = []
    end: list[int] = []
    size: list[int] = []
    for s, born, last in zip(lived.storage, lived.born, lived.last, strict=True):
        taken = newest.get(problem.reuses[order[born]])
        if taken is not None and end[taken] == born:
            block = taken
            end[block] = last + 1
        elif problem.sizes[s]:
            block = len(storage)
            storage.append(s)
            begin.append(born)
            end.append(last + 1)
            size.append(problem.sizes[s])
        else:
            continue
        newest[s] = block
    for step, o in enumerate(order):
        if problem.workspaces[o]:
            storage.append(WORKSPACE)
            begin.append(step)
            end.append(step + 1)
            size.append(problem.workspaces[o])
    found = (np.array(each, dtype=np.int64) for each in (begin, end, size))
    return Blocks(*found), storage
