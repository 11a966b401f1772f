"""Passes through blocks that have saved something: their time and bytes, for every way of saving before and after."""

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.options import Option, outward_peak
from lowtide.planning.optimal.settings import SETTINGS

Times = NDArray[np.float32]
Sizes = NDArray[np.float64]


class Passes:
    """`options[b]` are block b's ways of saving, from the least stored on; way p is the p-th of every block.

    `like[b]` is a block that b repeats: it is worked through once for all.
    """

    def __init__(self, blocks: Blocks, options: Sequence[Sequence[Option]], like: Sequence[int]) -> None:
        self.blocks = blocks
        self.option_count = ways = min(map(len, options))
        count = blocks.count
        self.saved = [[options[b][p].saved for b in range(count)] for p in range(ways)]
        self.remake = np.array([[options[b][p].time for b in range(count)] for p in range(ways)], dtype=np.float32)
        self.back = np.array([[options[b][p].back for b in range(count)] for p in range(ways)], dtype=float)
        stored = np.array([[options[b][p].stored for b in range(count)] for p in range(ways)], dtype=float)
        self.before = np.concatenate((np.zeros((ways, 1)), stored.cumsum(axis=1)), axis=1)
        """Per way the bytes saved by all blocks before one."""
        self.entry = np.array(
            [[_entry_bytes(blocks, i, saved) for i in range(count)] for saved in self.saved], dtype=float
        )
        """[q, i, s]: bytes of block s's entry that neither block i's entry nor what blocks i to s - 1 save has."""
        self.behind = np.array([blocks.behind[k] for k in blocks.returns], dtype=float)
        self.rate = np.array([_rate(blocks, b) for b in range(count)])
        self.time = np.zeros((ways, ways, count))
        self.peak = np.zeros((ways, ways, count))
        for b in range(count):
            for p, q in combinations_with_replacement(range(ways if like[b] == b else 0), 2):
                before, after = self.saved[p][b], self.saved[q][b]
                self.time[p, q, b] = _make_time(blocks, b, before, after)
                self.peak[p, q, b] = outward_peak(blocks, b, before | after)
        same = np.array(like)
        self.time, self.peak = self.time[:, :, same], self.peak[:, :, same]
        self.passed = np.concatenate((np.zeros((ways, ways, 1)), self.time.cumsum(axis=2)), axis=2)
        self._highest = {
            (p, i): np.maximum.accumulate(self._need(p, i), axis=1) for p in range(ways) for i in range(count)
        }

    def _need(self, p: int, i: int) -> Sizes:
        """[q, b]: bytes while the pass from block i is in block b, less what way p has saved before the end."""
        held = self.before[p:, i:-1] - self.before[p:, i : i + 1]
        need: Sizes = held + self.entry[p:, i, i:-1] + self.peak[p, p:, i:] - self.before[p, i + 1 :]
        return need

    def through(self, p: int, i: int, j: int) -> Times:
        """[q, s - i - 1]: time of the pass from block i up to s, for s of i + 1 to j."""
        with np.errstate(invalid="ignore"):
            found = self.passed[p, p:, i + 1 : j + 1] - self.passed[p, p:, i : i + 1]
        return np.asarray(np.nan_to_num(found, nan=math.inf, posinf=math.inf), dtype=np.float32)

    def through_peak(self, p: int, i: int, j: int) -> Sizes:
        """[q, s - i - 1]: bytes that this pass takes when the program has come back to block j."""
        found: Sizes = self._highest[p, i][:, : j - i] + (self.before[p, j + 1] + self.behind[j])
        return found

    def first_peak(self, i: int) -> Sizes:
        """[q, s - i - 1]: bytes of the program's own pass from block i up to s, before which nothing was saved."""
        held = self.before[:, i:-1] - self.before[:, i : i + 1]
        own = np.array([self.peak[q, q, i:] for q in range(self.option_count)])
        found: Sizes = np.maximum.accumulate(held + self.entry[:, i, i:-1] + own, axis=1)
        return found

    def beyond(self, p: int, i: int, j: int) -> Sizes:
        """[q, s - i - 1]: bytes held of blocks i up to s, and of the entry of s, while those behind are worked on."""
        found: Sizes = self.before[p:, i + 1 : j + 1] - self.before[p:, i : i + 1] + self.entry[p:, i, i + 1 : j + 1]
        return found


def _entry_bytes(blocks: Blocks, i: int, saved: Sequence[frozenset[int]]) -> list[int]:
    """Per block the bytes of its entry that are held beside block i's entry and what is saved from block i on."""
    sizes, entry = blocks.view.problem.sizes, [*blocks.entry, frozenset[int]()]
    held, found = set(entry[i]), [0] * (i + 1)
    for s in range(i + 1, len(entry)):
        held |= saved[s - 1]
        found.append(sum(sizes[e] for e in entry[s] - held))
    return found


def _make_time(blocks: Blocks, b: int, before: frozenset[int], after: frozenset[int]) -> float:
    """Time to make what block b passes on and what it saves `after`, from its entry and what it had saved `before`."""
    problem, view = blocks.view.problem, blocks.view
    low = blocks.cuts[b]
    stack = [s for s in blocks.onward(b) | after if view.born.get(s, low) >= low and s not in before]
    seen, ops = set(stack), set[int]()
    while stack:
        makers = [o for o in problem.producers[stack.pop()] if not problem.ops[o].once]
        if not makers:
            return math.inf
        o = next((q for q in makers if problem.ops[q].optional and before.issuperset(problem.reads[q])), makers[0])
        ops.add(o)
        for s in problem.reads[o]:
            if view.born.get(s, low) >= low and s not in before and s not in seen:
                seen.add(s)
                stack.append(s)
    return sum(problem.times[o] for o in ops)


def _rate(blocks: Blocks, b: int) -> float:
    """About what a byte costs that block b lacks on return, by its ops' time per byte that they make for later."""
    problem = blocks.view.problem
    made = sum(problem.sizes[s] for s in blocks.needed[b])
    return SETTINGS.missing_price * sum(problem.times[problem.program[k]] for k in blocks.positions(b)) / max(1, made)
