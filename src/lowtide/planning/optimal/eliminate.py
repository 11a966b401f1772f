"""Least sum of tables over shared variables, exactly: one variable after another is minimised out."""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps

Table = NDArray[np.float64]
Scope = tuple[int, ...]


class TooWide(Exception):
    """Too many variables meet in one table."""


@dataclass(frozen=True)
class _Step:
    """One variable: the tables that it takes in, and the variables that these leave in the new one."""

    variable: int
    taken: tuple[int, ...]
    scope: Scope


class Elimination:
    """The order for tables of given scopes, smallest first; the values of the tables come later, again and again."""

    def __init__(self, sizes: Mapping[int, int], scopes: Sequence[Scope]) -> None:
        self.sizes, self.scopes = dict(sizes), list(scopes)
        self.steps: list[_Step] = []
        self.entries = 0
        """Of all tables that `minimise` goes through."""
        self._touching: dict[int, set[int]] = {v: set() for v in sizes}
        for f, scope in enumerate(scopes):
            for v in scope:
                self._touching[v].add(f)
        queue = [(self._weight(v), v) for v in sizes]
        heapq.heapify(queue)
        while queue:
            weight, v = heapq.heappop(queue)
            charge_steps(SETTINGS.charges.variable)
            if v not in self._touching or weight != self._weight(v):
                continue
            if weight > SETTINGS.widest:
                raise TooWide
            for u in self._eliminate(v):
                heapq.heappush(queue, (self._weight(u), u))

    def _scope(self, v: int) -> Scope:
        return tuple(sorted({u for f in self._touching[v] for u in self.scopes[f]} - {v}))

    def _weight(self, v: int) -> int:
        return self.sizes[v] * math.prod(self.sizes[u] for u in self._scope(v))

    def _eliminate(self, v: int) -> Scope:
        scope, taken = self._scope(v), tuple(sorted(self._touching.pop(v)))
        self.steps.append(_Step(v, taken, scope))
        self.entries += len(taken) * self.sizes[v] * math.prod(self.sizes[u] for u in scope)
        for u in scope:
            self._touching[u].difference_update(taken)
            self._touching[u].add(len(self.scopes))
        self.scopes.append(scope)
        return scope

    def minimise(self, tables: Sequence[Table]) -> tuple[float, dict[int, int]]:
        """The least sum, and the value of every variable that has it."""
        table, entry = SETTINGS.charges.eliminated
        charge_steps(table * len(self.scopes) + entry * self.entries)
        found = list(tables)
        for step in self.steps:
            axes = (step.variable, *step.scope)
            joint = self._spread(found, step.taken[0], axes)
            for f in step.taken[1:]:
                joint = joint + self._spread(found, f, axes)
            found.append(joint.min(axis=0))
        total = sum(float(table) for table in found if table.ndim == 0)
        chosen: dict[int, int] = {}
        for step in reversed(self.steps):
            row = sum(self._row(found[f], self.scopes[f], step.variable, chosen) for f in step.taken)
            chosen[step.variable] = int(np.argmin(row))
        return total, chosen

    def _spread(self, tables: Sequence[Table], f: int, axes: Scope) -> Table:
        """A table with its axes in the order of `axes`, of length one where it does not depend on one."""
        scope = self.scopes[f]
        order = sorted(range(len(scope)), key=lambda i: axes.index(scope[i]))
        shape = [self.sizes[v] if v in scope else 1 for v in axes]
        return np.asarray(tables[f].transpose(order).reshape(shape))

    def _row(self, table: Table, scope: Scope, variable: int, chosen: Mapping[int, int]) -> Table:
        return np.asarray(table[tuple(slice(None) if v == variable else chosen[v] for v in scope)])
