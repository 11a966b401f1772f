"""A bound from many instants at once: bytes at each have a price, and the rest is solved along the chain of ops.

At given prices every op of forward chooses a pattern: it does not run again, it runs again in one segment between
instants, or in one and then at least once more, for which it counts two runs and is taken to be at hand ever after. A
storage pays for the instants at which it must be kept, which follows from the patterns of its producer and its readers.
What the program makes after the first instant is charged storage by storage, as if its inputs were there. Every step of
this leaves something out that a schedule must pay, so whatever the prices, time and paid bytes less the price of the
room is a bound on every schedule.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.planning.optimal.eliminate import Elimination, Scope, Table
from lowtide.planning.optimal.packing import Packing
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps


@dataclass(frozen=True)
class _Pattern:
    """Sets of segments as bits: where what the op makes is at hand, where its inputs must be, and how often it runs."""

    supply: int
    demand: int
    runs: int


@dataclass(frozen=True)
class _Paid:
    """A storage of forward: its bytes, its table, and [pattern of its producer, instant] 1 where the program needs
    it not to be kept."""

    bytes: float
    table: int
    producer: int | None
    readers: Scope
    spared: Table
    packing: Packing | None = None


@dataclass(frozen=True)
class _Charged:
    """A storage made after the first instant: per pattern of its producer the time and where it is not kept."""

    bytes: float
    times: Table
    spared: Table
    packing: Packing | None = None


@dataclass(frozen=True)
class Priced:
    """What prices yield: the bound, and by how many bytes the answer exceeds the room at each instant.

    That is how the bound changes at most at other prices.
    """

    prices: Table
    bound: float
    over: Table


class Prices:
    """The relaxation for `instants`, to be evaluated at any prices; of a problem without optional ops."""

    def __init__(self, view: ProgramView, budget: int, instants: Sequence[int]) -> None:
        self.view, self.instants, self.count = view, tuple(instants), len(instants)
        problem = view.problem
        ops = [problem.program[t] for t in instants]
        own = [problem.workspaces[o] + sum(problem.sizes[s] for s in problem.writes[o]) for o in ops]
        self.room: Table = budget - problem.resident_bytes - np.array(own, dtype=float)
        self.patterns = _patterns(self.count)
        self.domain = [sum(p.demand < 1 << reach for p in self.patterns) for reach in range(self.count + 1)]
        self.spared = _spared([p.supply for p in self.patterns], [p.demand for p in self.patterns], 0, self.count)
        """[producer, reader, instant]: 1 where the reader's runs do not ask for the storage to be kept."""
        self.needed: dict[int, int] = {}
        self.forced: dict[int, int] = {}
        for s in view.needs:
            self._read_by_program(s)
        self.reach = self._reach()
        self.tables: list[Table] = []
        self.paid: list[_Paid] = []
        self.charged: list[_Charged] = []
        scopes = self._fill()
        self.entries = sum(self._entries(paid) for paid in self.paid)
        charge_steps(SETTINGS.charges.priced * (view.count + len(self.paid) + len(self.charged)))
        self.elimination = Elimination({o: self.domain[reach] for o, reach in self.reach.items()}, scopes)

    def _segment(self, k: int) -> int:
        """Segment 0 ends before the first instant; segment j begins with instant j - 1, counted from 0."""
        return int(np.searchsorted(self.instants, k, side="right"))

    def _read_by_program(self, s: int) -> None:
        """The segments in which the program reads `s`, and the instants at which its op does, as bits."""
        view, problem = self.view, self.view.problem
        needed = forced = 0
        for k in view.needs[s]:
            j = self._segment(k) - 1
            if j < 0:
                continue
            if k < view.count and self.instants[j] == k:
                if problem.reuses[problem.program[k]] != s:
                    forced |= 1 << j
                elif j:
                    needed |= 1 << (j - 1)
            else:
                needed |= 1 << j
        if needed | forced:
            self.needed[s], self.forced[s] = needed, forced

    def _reach(self) -> dict[int, int]:
        """Per op of forward up to which segment running it again can be of use, where there is one."""
        problem = self.view.problem
        found: dict[int, int] = {}
        for o in problem.program[self.instants[0] - 1 :: -1] if self.instants[0] else ():
            if problem.ops[o].once:
                continue
            reach = 0
            for s in problem.writes[o]:
                uses = (found.get(q, 0) for q in problem.readers[s])
                own = self.needed.get(s, 0).bit_length(), self.forced.get(s, 0).bit_length() - 1
                reach = max(reach, *own, *uses)
            if reach:
                found[o] = reach
        return found

    def _fill(self) -> list[Scope]:
        problem, born = self.view.problem, self.view.born
        runs = np.array([p.runs for p in self.patterns], dtype=float)
        scopes: list[Scope] = [(o,) for o in self.reach]
        self.tables.extend(runs[: self.domain[reach]] * problem.times[o] for o, reach in self.reach.items())
        for o in problem.program[: self.instants[0]]:
            for s in problem.writes[o]:
                readers = [q for q in problem.readers[s] if q in self.reach]
                if problem.sizes[s] and (s in self.needed or readers):
                    readers = readers if len(readers) < 3 else [readers[0], readers[-1]]
                    self.paid.append(self._pay(s, o, readers, len(scopes)))
                    scopes.append(((o,) if o in self.reach else ()) + tuple(readers))
                    self.tables.append(np.zeros(0))
        for s, needed in self.needed.items():
            i = self._segment(born[s])
            if i and (needed | self.forced[s]) >> i:
                self.charged.append(self._charge(s, i))
        return scopes

    def _pay(self, s: int, o: int, readers: list[int], table: int) -> _Paid:
        supplies = [p.supply for p in self.patterns[: self.domain[self.reach.get(o, 0)]]]
        spared = _spared(supplies, [self.needed.get(s, 0)], self.forced.get(s, 0), self.count)[:, 0]
        producer = o if o in self.reach else None
        size, packing = float(self.view.problem.sizes[s]), self.view.packing.get(s)
        return _Paid(size, table, producer, tuple(readers), spared, packing)

    def _charge(self, s: int, i: int) -> _Charged:
        """Made by the program in segment i: kept over the instants that follow, or its op runs again."""
        problem = self.view.problem
        o = problem.program[self.view.born[s]]
        able = [p for p in self.patterns if not p.demand & ((1 << i) - 1)][: 1 if problem.ops[o].once else None]
        supplies = [p.supply | 1 << (i - 1) for p in able]
        times = np.array([p.runs * problem.times[o] / len(problem.writes[o]) for p in able])
        spared = _spared(supplies, [self.needed[s]], self.forced[s], self.count)[:, 0]
        return _Charged(float(problem.sizes[s]), times, spared, self.view.packing.get(s))

    def at(self, prices: Table) -> Priced:
        """The bound at these prices, one per instant and byte."""
        storage, entry = SETTINGS.charges.price
        charge_steps(storage * (len(self.paid) + len(self.charged)) + entry * self.entries)
        tables = list(self.tables)
        for paid in self.paid:
            tables[paid.table] = self._table(paid, prices)
        total, chosen = self.elimination.minimise(tables)
        over = -self.room
        for paid in self.paid:
            x = 0 if paid.producer is None else chosen[paid.producer]
            spared = paid.spared[x]
            for q in paid.readers:
                spared = spared * self.spared[x, chosen[q]]
            over = over + _taken(paid.bytes, paid.packing, 1 - spared, prices)
        for charged in self.charged:
            costs = charged.times + _paid(charged.bytes, charged.packing, (1 - charged.spared) @ prices)
            pick = int(costs.argmin())
            total += float(costs[pick])
            over = over + _taken(charged.bytes, charged.packing, 1 - charged.spared[pick], prices)
        return Priced(prices, total - float(prices @ self.room), over)

    def _entries(self, paid: _Paid) -> int:
        sizes = [self.domain[self.reach[q]] for q in paid.readers]
        return math.prod(sizes) * len(paid.spared) * self.count

    def _table(self, paid: _Paid, prices: Table) -> Table:
        """What a storage pays, by the patterns of its producer and its readers."""
        count, weighted = len(paid.spared), paid.spared * prices
        sizes = [self.domain[self.reach[q]] for q in paid.readers]
        if not sizes:
            spared = weighted.sum(axis=1)
        elif len(sizes) == 1:
            spared = np.matmul(self.spared[:count, : sizes[0]], weighted[:, :, None])[:, :, 0]
        else:
            one, two = self.spared[:count, : sizes[0]], self.spared[:count, : sizes[1]]
            spared = np.matmul(one * weighted[:, None, :], two.transpose(0, 2, 1))
        table = _paid(paid.bytes, paid.packing, prices.sum() - spared)
        return np.asarray(table if paid.producer is not None else table[0])


def _paid(size: float, packing: Packing | None, price: Table) -> Table:
    """What a storage pays at these prices of a byte, all instants together: as it is, or packed where that is less."""
    return size * price if packing is None else np.minimum(size * price, packing.bytes * price + packing.time)


def _taken(size: float, packing: Packing | None, kept: Table, prices: Table) -> Table:
    """The bytes that it then takes at each instant."""
    price = float(kept @ prices)
    packs = packing is not None and packing.bytes * price + packing.time < size * price
    return kept * (packing.bytes if packing is not None and packs else size)


def _patterns(count: int) -> list[_Pattern]:
    """All patterns, those that run in early segments only first."""
    full = (1 << count) - 1
    once = [_Pattern(1 << i, 1 << i, 1) for i in range(count)]
    more = [_Pattern(full >> i << i, 1 << i, 2) for i in range(count - 1)]
    return sorted([_Pattern(0, 0, 0), *once, *more], key=lambda p: (p.demand, p.runs))


def _spared(supplies: Sequence[int], needs: Sequence[int], forced: int, count: int) -> Table:
    """[supply, needs, instant]: 0 where a storage at hand in `supply` must be kept for `needs`, else 1."""
    bits = np.arange(count)
    at_hand = np.array(supplies, dtype=np.int64)[:, None] >> bits & 1 == 1
    wanted = np.array(needs, dtype=np.int64)[:, None] >> bits & 1 == 1
    found = np.ones((len(supplies), len(needs), count))
    kept = np.zeros((len(supplies), len(needs)), dtype=bool)
    for j in range(count - 1, -1, -1):
        kept = (kept | wanted[None, :, j]) & ~at_hand[:, None, j]
        if forced >> j & 1:
            kept[:] = True
        found[:, :, j] = ~kept
    return found
