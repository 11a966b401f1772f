"""Lifetimes: what lives from when to when in an order, or a part of one, and the bytes that follow.

All of the planner but the compiled walks asks here; the simulator, which judges, has its own.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import counted_until, instances

if TYPE_CHECKING:
    from lowtide.planning.optimal.program_view import ProgramView

Bytes = NDArray[np.int64]


def alive_bytes(first: Sequence[int], last: Sequence[int], sizes: Sequence[int], count: int) -> Bytes:
    """Bytes at each of `count` steps of values that live from a first step to a last one, both included."""
    change = np.zeros(count + 2, dtype=np.int64)
    weight = np.array(sizes, dtype=np.int64)
    np.add.at(change, np.array(first, dtype=np.int64), weight)
    np.subtract.at(change, np.array(last, dtype=np.int64) + 1, weight)
    return np.asarray(np.cumsum(change)[:count])


def live_bytes(problem: Problem, order: Sequence[int]) -> Bytes:
    """Bytes alive at each step of an order, as the simulator counts them."""
    lived, sizes, workspaces = instances(problem, order), problem.sizes, problem.workspaces
    alive = alive_bytes(lived.born, lived.last, [sizes[s] for s in lived.storage], len(order))
    extra = np.fromiter((workspaces[o] for o in order), dtype=np.int64, count=len(order))
    return np.asarray(alive + extra + problem.resident_bytes)


def part_peak(
    problem: Problem,
    order: Sequence[int],
    own: Collection[int],
    *,
    there: Collection[int] = (),
    stay: Collection[int] = (),
    beside: Bytes | int = 0,
) -> int:
    """Peak over a part of an order: values that are `there` before it, and those of `own` that it makes.

    Each lives to the last op that touches it, to the end where it must `stay`; other bytes lie `beside` them.
    """
    first, last = dict.fromkeys(there, 0), dict.fromkeys(there, len(order))
    for step, o in enumerate(order):
        for s in problem.writes[o]:
            if s in own:
                first.setdefault(s, step)
        for s in (*problem.reads[o], *problem.writes[o]):
            if s in first:
                last[s] = step
    last.update((s, len(order)) for s in stay if s in first)
    until = counted_until(problem, order, list(first), [last[s] for s in first])
    alive = alive_bytes(list(first.values()), until, [problem.sizes[s] for s in first], len(order))
    workspaces = np.array([problem.workspaces[o] for o in order], dtype=np.int64)
    return int((alive + workspaces + beside).max(initial=0))


class Lifetimes:
    """Instances of an order with their readers' steps. Steps keep their numbers when a run is removed."""

    def __init__(self, view: "ProgramView", order: Sequence[int]) -> None:
        problem = view.problem
        charge_steps(SETTINGS.charges.lifetimes * len(order))
        self.view, self.order = view, list(order)
        self.storage: list[int] = []
        self.born: list[int] = []
        self.readers: list[list[int]] = []
        self.previous: list[int] = []
        self.following: list[int] = []
        self.written: list[list[int]] = []
        self.read: list[list[int]] = []
        newest = [-1] * len(problem.storages)
        for step, o in enumerate(order):
            self.read.append([newest[s] for s in problem.reads[o]])
            for instance in self.read[-1]:
                self.readers[instance].append(step)
            mine = []
            for s in problem.writes[o]:
                instance = len(self.born)
                mine.append(instance)
                self.storage.append(s)
                self.born.append(step)
                self.readers.append([])
                self.previous.append(newest[s])
                self.following.append(-1)
                if newest[s] >= 0:
                    self.following[newest[s]] = instance
                newest[s] = instance
            self.written.append(mine)
        for s in problem.kept:
            self.readers[newest[s]].append(len(order))
        self.live = live_bytes(problem, order)
        self.alive = [True] * len(order)
        self._of: dict[int, list[int]] = {}
        for instance, s in enumerate(self.storage):
            self._of.setdefault(s, []).append(instance)

    def instances_of(self, s: int) -> list[int]:
        """The instances of a storage in the order of their writes."""
        return self._of.get(s, [])

    def last(self, instance: int) -> int:
        """The step of the last read, or of the write where nothing reads it."""
        readers = self.readers[instance]
        return readers[-1] if readers else self.born[instance]

    def until(self, instance: int, last: int) -> int:
        """The last step at which an instance counts whose last read is at `last`: one less where that is in place."""
        taken = last < len(self.order) and self.view.problem.reuses[self.order[last]] == self.storage[instance]
        return last - taken

    def removal(self, step: int) -> list[tuple[int, int, int]] | None:
        """(from, to, bytes) changes of live bytes if the run at `step` were left out; None where it must stay."""
        sizes = self.view.problem.sizes
        changes: list[tuple[int, int, int]] = []
        for instance in self.written[step]:
            readers = self.readers[instance]
            if not readers:
                continue
            before = self.previous[instance]
            if before < 0:
                return None
            changes.append((self.until(before, self.last(before)) + 1, step, sizes[self.storage[instance]]))
        for instance in self.read[step]:
            readers = self.readers[instance]
            if readers[-1] == step:
                until = readers[-2] if len(readers) > 1 else self.born[instance]
                changes.append((self.until(instance, until) + 1, step, -sizes[self.storage[instance]]))
        return changes

    def remove(self, step: int, changes: list[tuple[int, int, int]]) -> None:
        """Leave out the run at `step`; what read its values reads the instances before them."""
        for start, end, size in changes:
            self.live[start:end] += size
        for instance in self.written[step]:
            before, after = self.previous[instance], self.following[instance]
            if before >= 0:
                self.readers[before].extend(self.readers[instance])
                self.following[before] = after
                for reader in self.readers[instance]:
                    if reader < len(self.order):
                        self.read[reader][self.read[reader].index(instance)] = before
            if after >= 0:
                self.previous[after] = before
            self.readers[instance] = []
        for instance in self.read[step]:
            readers = self.readers[instance]
            del readers[bisect_left(readers, step)]
        self.written[step], self.read[step] = [], []
        self.alive[step] = False
        self.live[step] = 0

    def remaining(self) -> list[int]:
        """The order without what was removed."""
        return [o for o, alive in zip(self.order, self.alive, strict=True) if alive]


def excess(live: Bytes, budget: int) -> int:
    """Bytes over the budget, summed over all steps."""
    return int(np.maximum(live - budget, 0).sum())
