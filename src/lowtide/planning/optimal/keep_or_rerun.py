"""What a span of blocks stores and what it runs again, at any price of a byte, where no op of it can pack values."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from lowtide.planning.optimal.eliminate import Elimination, Scope, Table, TooWide
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge
from lowtide.planning.problem import Problem


class KeepOrRerun:
    """Each op runs again or not; a value is stored where it is wanted and its op does not. Solved op by op."""

    def __init__(
        self,
        problem: Problem,
        ops: Sequence[int],
        needed: Collection[int],
        given: Collection[int],
        free: Collection[int],
    ) -> None:
        """`given` comes from outside, `free` is at hand anyway; what reads anything else cannot run again."""
        self.problem = problem
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
        charge(20 * SETTINGS.step + 2e-3 * SETTINGS.step * 2 ** len(scope))
        table = np.ones((2,) * len(scope))
        if not wanted:
            table[(0,) * len(scope)] = 0.0
        if o in self.able:
            table[1] = 0.0
        self.stored.append((s, table))
        self.scopes.append(scope)

    def at(self, price: float) -> tuple[frozenset[int], float]:
        """The values stored at this price, and the time of what runs again."""
        sizes = self.problem.sizes
        tables = [np.array([0.0, time]) for time in self.times.values()]
        tables.extend((price * sizes[s] + 1e-12) * table for s, table in self.stored)
        _, chosen = self.elimination.minimise(tables)
        own = self.scopes[len(self.times) :]
        saved = frozenset(
            s for (s, table), scope in zip(self.stored, own, strict=False) if table[tuple(chosen[v] for v in scope)]
        )
        return saved, math.fsum(time for o, time in self.times.items() if chosen[o])
