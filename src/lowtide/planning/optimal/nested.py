"""A dynamic program over many small blocks that come back to a run of them again and again, each time storing more.

After Beaumont et al., "Optimal checkpointing for heterogeneous chains" (2019), but a run of blocks may be left with any
of its options: `cost[p]` of blocks i to j in m bytes is the least time to work them off where each has saved what it
saves by option p and the entry of block i is at hand. Either one block is left, or a pass from the entry goes through i
to s - 1, saving by option q, then s to j are worked off, and then i to s - 1. So passes are as deep as the bytes ask
for, and what was saved makes the later ones cheap. Intervals of the same blocks share their tables.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.passes import Passes
from lowtide.planning.optimal.repeats import Intervals
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge

Table = NDArray[np.float32]
Choice = NDArray[np.int32]


@dataclass
class Nested:
    """The tables for one budget."""

    blocks: Blocks
    passes: Passes
    room: int
    """Bytes for all that is not resident."""
    intervals: Intervals
    levels: int

    @staticmethod
    def work(intervals: Intervals, ways: int, levels: int) -> float:
        """What the tables take: so much per row, and per way and split of each level."""
        row, entry = SETTINGS.charges.nested_row, SETTINGS.charges.nested_entry
        return SETTINGS.step * (row * ways * len(intervals.first) + entry * levels * ways**2 * intervals.splits)

    def __post_init__(self) -> None:
        count, ways, rows = self.blocks.count, self.passes.option_count, len(self.intervals.first)
        charge(self.work(self.intervals, ways, self.levels))
        self.place = self.intervals.place
        self.unit = max(1, self.room) / self.levels
        self.grid = np.arange(self.levels + 1)
        self.cost: Table = np.full((ways, rows, self.levels + 1), math.inf, dtype=np.float32)
        self.choice: Choice = np.full((ways, rows, self.levels + 1), -1, dtype=np.int32)
        self.first: Table = np.zeros((count + 1, self.levels + 1), dtype=np.float32)
        self.first_choice: Choice = np.full((count + 1, self.levels + 1), -1, dtype=np.int32)
        for i, j in self.intervals.first:
            for p in range(ways - 1, -1, -1):
                if i == j:
                    self._fill_block(p, i)
                else:
                    self._fill(p, i, j)
        for i in range(count - 1, -1, -1):
            self._fill_first(i)

    def _units(self, size: float) -> int:
        return round(float(size) / self.unit)

    def _fill_block(self, p: int, b: int) -> None:
        """One block alone. A part of what it takes may be missing: repair finds it by running more of it again."""
        passes, row = self.passes, self.cost[p, self.place[b, b]]
        missing = np.maximum(0.0, passes.back[p, b] - self.grid * self.unit)
        row[:] = passes.remake[p, b] + missing * passes.rate[b]
        row[missing > SETTINGS.missing * passes.back[p, b]] = math.inf

    def _fill(self, p: int, i: int, j: int) -> None:
        """Blocks i to j, saved by way p: the best split, and the way of saving on the pass up to it."""
        passes = self.passes
        time = passes.through(p, i, j)
        least = np.rint(passes.through_peak(p, i, j) / self.unit).astype(np.int64)
        shift = np.rint(passes.beyond(p, i, j) / self.unit).astype(np.int64)
        left, right = self.cost[p:, self.place[i, i:j]], self.cost[p, self.place[i + 1 : j + 1, j]]
        row = self.place[i, j]
        self.cost[p, row], self.choice[p, row] = self._best(right, left, time, least, shift)

    def _fill_first(self, i: int) -> None:
        """The program's own pass from block i to the peak, which costs nothing."""
        passes, count = self.passes, self.blocks.count
        least = np.rint(passes.first_peak(i) / self.unit).astype(np.int64)
        shift = np.rint(passes.beyond(0, i, count) / self.unit).astype(np.int64)
        left = self.cost[:, self.place[i, i:count]]
        time = np.zeros(least.shape, dtype=np.float32)
        self.first[i], self.first_choice[i] = self._best(self.first[i + 1 :], left, time, least, shift)

    def _best(
        self, right: Table, left: Table, time: Table, least: NDArray[np.int64], shift: NDArray[np.int64]
    ) -> tuple[Table, Choice]:
        """Per grid level the least sum over ways and splits, and its place in the flattened list of them."""
        ways, splits, width = left.shape
        padded = np.concatenate((np.full((splits, width), math.inf, dtype=np.float32), right), axis=1)
        start = width - np.minimum(shift, width)
        total = left + time[:, :, None]
        windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
        total += windows[np.arange(splits), start]
        total[self.grid[None, None, :] < least[:, :, None]] = math.inf
        flat = total.reshape(ways * splits, width)
        pick = flat.argmin(axis=0)
        return flat[pick, self.grid], pick.astype(np.int32)

    def extra(self, level: int | None = None) -> float:
        """Extra time of the best way in the room up to a level of the grid, by the program's own reckoning."""
        return float(self.first[0, self.levels if level is None else level])

    def decision(self, level: int | None = None) -> Decision | None:
        """What the best way stores whenever the program comes back to a block; None where nothing fits."""
        blocks, passes, count = self.blocks, self.passes, self.blocks.count
        if not math.isfinite(self.extra(level)):
            return None
        whole = self.levels if level is None else level
        stored: dict[int, frozenset[int]] = {}
        work: list[tuple[int, int, int, int, frozenset[int]]] = [(-1, 0, count, whole, blocks.entry[0])]
        while work:
            p, i, j, level, held = work.pop()
            if p >= 0 and i == j:
                stored[i] = held | passes.saved[p][i] | blocks.onward(i)
                continue
            splits = count - i if p < 0 else j - i
            choice = self.first_choice[i] if p < 0 else self.choice[p, self.place[i, j]]
            q, at = divmod(int(choice[level]), splits)
            way, s = max(p, 0) + q, i + 1 + at
            work.append((way, i, s - 1, level, held))
            if s < count:
                beyond = self._units(passes.beyond(max(p, 0), i, j)[q, at])
                saved = frozenset[int]().union(*passes.saved[way][i:s])
                work.append((p, s, j, level - beyond, held | saved | blocks.entry[s]))
        return as_decision(blocks, stored)


def as_decision(blocks: Blocks, stored: dict[int, frozenset[int]]) -> Decision:
    """One instant per return; beside the chain's own values all that the program has alive there."""
    view = blocks.view
    at: dict[int, set[int]] = {}
    managed = {s for needed in blocks.needed for s in needed}
    for b in range(blocks.count - 1, -1, -1):
        if b + 1 < blocks.count and stored[b] == stored[b + 1]:
            continue  # the same span: its values are made on demand
        t = blocks.returns[b]
        alive = {
            s for s, last in view.last.items() if view.born[s] < t <= last and s not in managed and last >= blocks.peak
        }
        now = {s for s in view.problem.reads[view.problem.program[t]] if view.born[s] < t}
        at[t] = {s for s in stored[b] if view.born.get(s, -1) < t} | alive | now
        managed.difference_update(s for c in range(b, blocks.count) for s in blocks.needed[c])
    instants = tuple(sorted(at))
    runs = tuple(_optional_runs(blocks, at[t]) for t in instants)
    return Decision(instants, tuple(frozenset(at[t]) for t in instants), runs)


def _optional_runs(blocks: Blocks, stored: set[int]) -> frozenset[int]:
    """Unpacking ops for what is stored smaller."""
    problem, born = blocks.view.problem, blocks.view.born
    return frozenset(
        o
        for s in stored
        if s not in born
        for o in problem.readers[s]
        if problem.ops[o].optional and not problem.ops[o].once
    )
