"""A dynamic program over the chain of blocks: where to store, what to pass through twice, which option each takes.

After Beaumont et al., "Optimal checkpointing for heterogeneous chains" (2019): blocks i to j in m bytes either store
block i by one of its options and go on behind it, or pass through blocks i to k - 1 storing nothing, deal with k to j,
and come back. Bytes are rounded to a grid; the schedule built from the answer is simulated and repaired like any other.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.options import Option, Span, outward_peak

Row = NDArray[np.float64]


@dataclass
class Chain:
    """The table for one budget; `options` per span of blocks."""

    blocks: Blocks
    options: dict[Span, list[Option]]
    room: int
    """Bytes for all that is not resident."""
    levels: int = 600

    def __post_init__(self) -> None:
        blocks, problem = self.blocks, self.blocks.facts.problem
        self.unit = self.room / self.levels
        count = blocks.count
        self.passing = [outward_peak(blocks, (b, b + 1), frozenset()) for b in range(count)]
        self.forward = [
            sum(
                problem.times[o]
                for o in problem.program[blocks.cuts[b] : blocks.cuts[b + 1]]
                if not problem.ops[o].once
            )
            for b in range(count)
        ]
        self.ways = [
            [(end, option) for end in range(i + 1, count + 1) for option in self.options.get((i, end), ())]
            for i in range(count)
        ]
        self.cost: dict[tuple[int, int], Row] = {}
        self.choice: dict[tuple[int, int], NDArray[np.int32]] = {}
        for length in range(count):
            for i in range(count - length):
                self._fill(i, i + length)

    def _units(self, size: int) -> int:
        return round(size / self.unit)

    def _bytes(self, storages: frozenset[int]) -> int:
        return sum(self.blocks.facts.problem.sizes[s] for s in storages)

    def _beyond(self, i: int, end: int, option: Option) -> int:
        """Bytes held while what lies behind a span is worked on, without the span's entry."""
        return option.stored + self._bytes(self.blocks.entry[end] - self.blocks.entry[i] - option.saved)

    def _fill(self, i: int, j: int) -> None:
        """Least extra time of blocks i to j per grid level; choice o >= 0 is an option, -k - 1 a passage to block k."""
        best = np.full(self.levels + 1, math.inf)
        pick = np.full(self.levels + 1, -1, dtype=np.int32)

        def offer(row: Row, least: int, code: int) -> None:
            if least <= self.levels:
                if least > 0:
                    row = row.copy()
                    row[:least] = math.inf
                better = row < best
                best[better] = row[better]
                pick[better] = code

        entry = self.blocks.entry
        for code, (end, option) in enumerate(self.ways[i]):
            if end > j + 1:
                break
            least = self._units(max(option.outward, option.back, option.stored))
            if end == j + 1:
                offer(np.full(self.levels + 1, float(option.time)), least, code)
            else:
                beyond = self._beyond(i, end, option)
                offer(_shifted(self.cost[end, j], self._units(beyond)) + option.time, least, code)
        time, least_bytes = 0.0, 0
        for k in range(i + 1, j + 1):
            time += self.forward[k - 1]
            least_bytes = max(least_bytes, self.passing[k - 1] + self._bytes(entry[k - 1] - entry[i]))
            row = _shifted(self.cost[k, j], self._units(self._bytes(entry[k] - entry[i]))) + self.cost[i, k - 1] + time
            offer(row, self._units(least_bytes), -k - 1)
        self.cost[i, j], self.choice[i, j] = best, pick

    def decision(self) -> Decision | None:
        """What the best way stores whenever the program comes back to a block; None where nothing fits."""
        blocks = self.blocks
        last = blocks.count - 1
        if not math.isfinite(self.cost[0, last][self.levels]):
            return None
        stored: dict[int, frozenset[int]] = {}
        work: list[tuple[int, int, int, frozenset[int]]] = [(0, last, self.levels, frozenset())]
        while work:
            i, j, level, held = work.pop()
            code = int(self.choice[i, j][level])
            entry = blocks.entry[i]
            if code >= 0:
                end, option = self.ways[i][code]
                for b in range(i, end):
                    stored[b] = held | entry | (option.on_return[b - i] if option.on_return else option.saved)
                if end <= j:
                    beyond = self._beyond(i, end, option)
                    work.append((end, j, level - self._units(beyond), held | entry | option.saved))
            else:
                k = -code - 1
                work.append((i, k - 1, level, held))
                beyond = self._bytes(blocks.entry[k] - entry)
                work.append((k, j, level - self._units(beyond), held | entry))
        return as_decision(blocks, stored)


def as_decision(blocks: Blocks, stored: dict[int, frozenset[int]]) -> Decision:
    """One instant per return; beside the chain's own values all that the program has alive there."""
    facts = blocks.facts
    at: dict[int, set[int]] = {}
    managed = {s for needed in blocks.needed for s in needed}
    for b in range(blocks.count - 1, -1, -1):
        if b + 1 < blocks.count and stored[b] == stored[b + 1]:
            continue  # the same span: its values are made on demand
        t = blocks.returns[b]
        alive = {
            s
            for s, needs in facts.needs.items()
            if facts.born[s] < t <= needs[-1] and s not in managed and needs[-1] >= blocks.peak
        }
        now = {s for s in facts.problem.reads[facts.problem.program[t]] if facts.born[s] < t}
        at[t] = {s for s in stored[b] if facts.born.get(s, -1) < t} | alive | now
        managed.difference_update(s for c in range(b, blocks.count) for s in blocks.needed[c])
    instants = tuple(sorted(at))
    none: frozenset[int] = frozenset()
    runs = tuple(_optional_runs(blocks, at[t]) for t in instants)
    return Decision(instants, tuple(frozenset(at[t]) for t in instants), runs or (none,))


def _optional_runs(blocks: Blocks, stored: set[int]) -> frozenset[int]:
    """Unpacking ops for what is stored smaller."""
    problem, born = blocks.facts.problem, blocks.facts.born
    return frozenset(
        o
        for s in stored
        if s not in born
        for o in problem.readers[s]
        if problem.ops[o].optional and not problem.ops[o].once
    )


def _shifted(row: Row, by: int) -> Row:
    """The row for `by` fewer levels."""
    if by <= 0:
        return row
    found = np.full(len(row), math.inf)
    if by < len(row):
        found[by:] = row[:-by]
    return found
