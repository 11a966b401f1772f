"""Options of a block: at each price of a byte, what it stores on the way out, as it is or packed, and runs again."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.eliminate import Elimination, Scope, Table, TooWide
from lowtide.planning.optimal.lifetimes import part_peak
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps
from lowtide.planning.problem import Problem


@dataclass(frozen=True)
class Option:
    """`stored` bytes while the blocks behind are worked on, `time` to run again on return."""

    saved: frozenset[int]
    stored: int
    time: float
    back: int
    """Peak of its own values, and of what the program writes meanwhile, on return."""


def block_options(blocks: Blocks, b: int, prices: Sequence[float]) -> list[Option]:
    """The best saved sets of a block at each price of a byte; none where too many ops meet at one value.

    What the block passes on is there on return.
    """
    problem, onward = blocks.view.problem, blocks.onward(b)
    needed = [s for s in blocks.needed[b] if s not in onward]
    ops = [problem.program[k] for k in blocks.positions(b)]
    try:
        saving = KeepOrRerun(problem, ops, needed, blocks.entry[b], onward, blocks.view.pairs)
    except TooWide:
        return []
    known: dict[frozenset[int], Option] = {}
    found: list[Option] = []
    for price in prices:
        saved, time = saving.at(price)
        if saved not in known:
            charge_steps(SETTINGS.charges.option * len(ops))
            stored = sum(problem.sizes[s] for s in saved)
            known[saved] = Option(saved, stored, time, _back_peak(blocks, b, saved))
        found.append(known[saved])
    return found


def outward_peak(blocks: Blocks, b: int, saved: frozenset[int]) -> int:
    """Peak of a block's own values while it runs forward and keeps `saved`."""
    order = [blocks.view.problem.program[k] for k in blocks.positions(b)]
    return part_peak(blocks.view.problem, order, _inside(blocks, b), stay=saved | blocks.onward(b))


def _inside(blocks: Blocks, b: int) -> set[int]:
    problem = blocks.view.problem
    return {s for k in blocks.positions(b) for s in problem.writes[problem.program[k]]}


def _back_peak(blocks: Blocks, b: int, saved: frozenset[int]) -> int:
    """Peak on return: the block's values made again on demand beside what the program writes meanwhile."""
    view, problem = blocks.view, blocks.view.problem
    start = blocks.returns[b]
    end = blocks.returns[b - 1] if b else view.count
    inside = _inside(blocks, b)
    there = saved | (blocks.onward(b) & inside)
    have = set(there)
    order: list[int] = []
    at: list[int] = []

    def run(o: int, k: int, depth: int) -> None:
        for s in problem.reads[o]:
            if s in inside and s not in have and depth < SETTINGS.again_depth:
                makers = [q for q in problem.producers[s] if not problem.ops[q].once]
                ready = [q for q in makers if problem.ops[q].optional and have.issuperset(problem.reads[q])]
                if makers:
                    run((ready or makers)[0], k, depth + 1)
        order.append(o)
        at.append(k)
        have.update(s for s in problem.writes[o] if s in inside)

    for k in range(start, min(view.count, max(start + 1, end))):
        run(problem.program[k], k, 0)
    stay = {s for s in inside | saved if view.last.get(s, -1) >= end}
    return part_peak(problem, order, inside, there=there, stay=stay, beside=blocks.behind[at])


class KeepOrRerun:
    """Each op runs again or not; a value is stored where it is wanted and its op does not. Solved op by op."""

    def __init__(
        self,
        problem: Problem,
        ops: Sequence[int],
        needed: Collection[int],
        given: Collection[int],
        free: Collection[int],
        packing: Mapping[int, tuple[int, int]],
    ) -> None:
        """`given` comes from outside, `free` is at hand anyway; what reads anything else cannot run again.

        `packing`: per storage the ops that pack and unpack it.
        """
        self.problem = problem
        self.packing = packing
        inside = {s for o in ops for s in problem.writes[o]}
        self.able = {o for o in ops if self._is_able(o, inside, given, free)}
        self.times = {o: problem.times[o] for o in sorted(self.able)}
        self.scopes: list[Scope] = [(o,) for o in self.times]
        self.stored: list[tuple[int, Table]] = []
        for o in ops:
            for s in problem.writes[o]:
                readers = tuple(q for q in problem.readers[s] if q in self.able)
                if s not in free and (s in needed or readers):
                    self._value(s, o, readers, wanted=s in needed)
        self.elimination = Elimination(dict.fromkeys(self.times, 2), self.scopes)

    def _is_able(self, o: int, inside: set[int], given: Collection[int], free: Collection[int]) -> bool:
        reads = self.problem.reads[o]
        return not self.problem.ops[o].once and all(s in inside or s in given or s in free for s in reads)

    def _value(self, s: int, o: int, readers: Scope, *, wanted: bool) -> None:
        """[runs of its op and its readers]: 1 where the value must be stored."""
        scope = ((o,) if o in self.able else ()) + readers
        if len(scope) > SETTINGS.meet:
            raise TooWide
        value, entry = SETTINGS.charges.value
        charge_steps(value + entry * 2 ** len(scope))
        table = np.ones((2,) * len(scope))
        if not wanted:
            table[(0,) * len(scope)] = 0.0
        if o in self.able:
            table[1] = 0.0
        self.stored.append((s, table))
        self.scopes.append(scope)

    def at(self, price: float) -> tuple[frozenset[int], float]:
        """The values stored at this price, packed where that is cheaper, and the time of packing and running again."""
        tables = [np.array([0.0, time]) for time in self.times.values()]
        forms = [self._form(s, price) for s, _ in self.stored]
        tables.extend(
            (cost + SETTINGS.smallest_byte) * table for (cost, _, _), (_, table) in zip(forms, self.stored, strict=True)
        )
        _, chosen = self.elimination.minimise(tables)
        own = self.scopes[len(self.times) :]
        lie = [
            form
            for form, (_, table), scope in zip(forms, self.stored, own, strict=False)
            if table[tuple(chosen[v] for v in scope)]
        ]
        again = math.fsum(time for o, time in self.times.items() if chosen[o])
        return frozenset(s for _, s, _ in lie), again + sum(time for _, _, time in lie)

    def _form(self, s: int, price: float) -> tuple[float, int, float]:
        """What storing a value costs at a price, as which storage, and the time of that: it or its packed form."""
        problem = self.problem
        whole = (price * problem.sizes[s], s, 0.0)
        if s not in self.packing:
            return whole
        pack, unpack = self.packing[s]
        small, time = problem.reads[unpack][0], problem.times[pack] + problem.times[unpack]
        return min(whole, (price * problem.sizes[small] + time, small, time))
