"""Blocks that repeat: networks are made of the same block again and again, and what is worked out for one serves all.

Two blocks count as the same where their ops, bytes and reads are the same, forward and on return, and their times about
the same: measured times differ a little from block to block, and plans made by them are judged by the exact ones later.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps

Interval = tuple[int, int]
"""Blocks from the first to the second of the two, both included."""


def repeats(blocks: Blocks) -> tuple[int, ...]:
    """Per block the first one that is like it: itself where there is none before it, or where few blocks repeat.

    Then sharing saves little, and each block with its own times gives the better plans.
    """
    charge_steps(SETTINGS.charges.compared * blocks.view.count)
    known: dict[object, list[int]] = {}
    found: list[int] = []
    times = [_times(blocks, b) for b in range(blocks.count)]
    for b in range(blocks.count):
        same = known.setdefault(_shape(blocks, b), [])
        first = next((q for q in same if _about(times[b], times[q])), b)
        if first == b:
            same.append(b)
        found.append(first)
    return tuple(found if len(set(found)) <= SETTINGS.mostly_unlike * blocks.count else range(blocks.count))


def own_storages(blocks: Blocks, b: int) -> list[int]:
    """What a block writes, in an order that blocks that repeat each other share."""
    problem = blocks.view.problem
    return [s for k in blocks.positions(b) for s in problem.writes[problem.program[k]]]


class Intervals:
    """Runs of blocks, those that consist of the same blocks taken as one."""

    def __init__(self, like: Sequence[int]) -> None:
        count = len(like)
        self.place: NDArray[np.int64] = np.full((count, count), -1, dtype=np.int64)
        """[i, j]: the number that blocks i to j share with all that repeat them."""
        self.first: list[Interval] = []
        """Per number the first interval, shorter ones before longer ones."""
        numbers: dict[Interval, int] = {}
        for length in range(count):
            for i in range(count - length):
                j = i + length
                before = int(self.place[i, j - 1]) if length else -1
                number = numbers.setdefault((before, like[j]), len(self.first))
                if number == len(self.first):
                    self.first.append((i, j))
                self.place[i, j] = number
        self.splits = sum(j - i for i, j in self.first)
        """Ways to split them in two, all together."""


def _times(blocks: Blocks, b: int) -> list[float]:
    problem = blocks.view.problem
    return [problem.times[problem.program[k]] for k in blocks.positions(b)]


def _about(one: Sequence[float], other: Sequence[float]) -> bool:
    total = sum(other)
    if abs(sum(one) - total) > SETTINGS.same_block * total:
        return False
    return all(
        abs(x - y) <= SETTINGS.same_op * max(x, y) + SETTINGS.same_small * total
        for x, y in zip(one, other, strict=True)
    )


def _shape(blocks: Blocks, b: int) -> object:
    """All that decides what a block may save and what coming back to it takes, with storages named by their places."""
    view, problem = blocks.view, blocks.view.problem
    entry = sorted(blocks.entry[b], key=lambda s: view.born[s])
    own = own_storages(blocks, b)
    if any(problem.ops[o].optional for s in own for o in (*problem.readers[s], *problem.producers[s])):
        return b  # what can be packed is not compared
    names = {s: i for i, s in enumerate((*entry, *own))}
    start = blocks.returns[b]
    end = max(start + 1, blocks.returns[b - 1] if b else view.count)
    forward = tuple(_op(blocks, k, names) for k in blocks.positions(b))
    back = tuple((_op(blocks, k, names), int(blocks.behind[k])) for k in range(start, min(end, view.count)))
    until = tuple((names[s], view.last[s] - start) for s in blocks.needed[b])
    onward = tuple(sorted(names[s] for s in blocks.onward(b) if s in names))
    sizes = tuple(problem.sizes[s] for s in (*entry, *own))
    return len(entry), sizes, forward, back, until, onward


def _op(blocks: Blocks, k: int, names: Mapping[int, int]) -> object:
    """An op as its block sees it; -1 is any storage from elsewhere."""
    problem = blocks.view.problem
    o = problem.program[k]
    reads = tuple(names.get(s, -1) for s in problem.reads[o])
    writes = tuple(names.get(s, -1) for s in problem.writes[o])
    return problem.workspaces[o], problem.ops[o].once, reads, writes, names.get(problem.reuses[o], -1)
