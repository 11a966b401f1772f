"""What a span of blocks stores, as it is or packed, and what it runs again, at any price of a byte."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from lowtide.planning.optimal.eliminate import Elimination, Scope, Table, TooWide
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps
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
