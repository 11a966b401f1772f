"""The simulator for local search: insert, remove or move one run of an op and know the new peak at once."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from lowtide.planning.problem import Problem
from lowtide.planning.schedule import ScheduleError
from lowtide.planning.simulate import simulate, time_of


class IncrementalTimeline:
    """An order that can be edited, always equal to `simulate` of it.

    An edit touches only the storages that the op reads or writes; the rest is shifting arrays by one, which numpy does
    in a few microseconds. An edit that would leave an order that cannot run raises ScheduleError and changes nothing.
    """

    def __init__(self, problem: Problem, order: Sequence[int]) -> None:
        if problem.lanes:
            raise ValueError("an order with lanes beside compute cannot be edited step by step")
        self._problem = problem
        self._count = len(order)
        self._total: npt.NDArray[np.int64] = np.array(simulate(problem, order).live, dtype=np.int64)
        self._step_op = list(order)  # by step id; ids do not move when steps are inserted
        self._ids = list(range(len(order)))  # step ids in order
        self._free: list[int] = []
        self._position: npt.NDArray[np.int64] = np.arange(len(order), dtype=np.int64)
        self._runs: list[list[int]] = [[] for _ in problem.ops]
        self._touching: list[list[int]] = [[] for _ in problem.storages]
        self._kept = frozenset(problem.kept)
        self._neighbours = {
            o: (before, after)
            for before, o, after in zip(
                (None, *problem.program), problem.program, (*problem.program[1:], None), strict=False
            )
        }
        for step, o in enumerate(order):
            self._enlist(step, o)

    @property
    def order(self) -> tuple[int, ...]:
        """The order as it stands."""
        return tuple(self._step_op[step] for step in self._ids)

    @property
    def peak(self) -> int:
        """The peak as it stands."""
        return int(self._total[: self._count].max())

    @property
    def peak_step(self) -> int:
        """The first step at the peak."""
        return int(self._total[: self._count].argmax())

    @property
    def live(self) -> tuple[int, ...]:
        """Device bytes at each step, as in Timeline."""
        return tuple(self._total[: self._count].tolist())

    @property
    def time(self) -> float:
        """Time of all steps."""
        return time_of(self._problem, self.order)

    def op_at(self, position: int) -> int:
        """The op at a step."""
        return self._step_op[self._ids[position]]

    def positions(self, o: int) -> tuple[int, ...]:
        """The steps at which an op runs."""
        return tuple(sorted(int(self._position[step]) for step in self._runs[o]))

    def insert(self, position: int, o: int) -> int:
        """Run `o` once more, as step `position`; the new peak."""
        self._edit(o, lambda affected: self._attach(position, o, affected), lambda _: self._detach(position))
        return self.peak

    def remove(self, position: int) -> int:
        """Leave out the run at step `position`; the new peak."""
        o = self.op_at(position)
        self._edit(o, lambda _: self._detach(position), lambda affected: self._attach(position, o, affected))
        return self.peak

    def move(self, position: int, to: int) -> int:
        """Take the run at step `position` and make it step `to` of the new order; the new peak."""
        o = self.op_at(position)

        def forth(affected: frozenset[int]) -> None:
            self._detach(position)
            self._attach(to, o, affected)

        def back(affected: frozenset[int]) -> None:
            self._detach(to)
            self._attach(position, o, affected)

        self._edit(o, forth, back)
        return self.peak

    def _edit(self, o: int, forth: Callable[[frozenset[int]], None], back: Callable[[frozenset[int]], None]) -> None:
        """Take the affected storages out of the sums, change the order, put them back as they now live."""
        affected = frozenset(self._problem.reads[o] + self._problem.writes[o])
        old = [(s, self._lives(s)) for s in affected]
        self._add(old, -1)
        forth(affected)
        try:
            self._check_runs(o)
            new = [(s, self._lives(s)) for s in affected]
        except ScheduleError:
            back(affected)
            self._add(old, 1)
            raise
        self._add(new, 1)

    def _add(self, lives: Iterable[tuple[int, list[tuple[int, int]]]], sign: int) -> None:
        for s, spans in lives:
            size = sign * self._problem.sizes[s]
            for born, last in spans:
                self._total[born : min(last + 1, self._count)] += size

    def _lives(self, s: int) -> list[tuple[int, int]]:
        """(first, last) step of every instance of `s`; the last is no more counted where its reader runs in place."""
        spans: list[tuple[int, int]] = []
        for position, step in sorted((int(self._position[step]), step) for step in self._touching[s]):
            if s in self._problem.writes[self._step_op[step]]:
                spans.append((position, position))
            elif not spans:
                raise ScheduleError(
                    f"step {position}: {self._problem.op_label(self._step_op[step])} reads "
                    f"{self._problem.storage_label(s)}, which nothing has written yet"
                )
            else:
                spans[-1] = (spans[-1][0], position)
        if s in self._kept:
            if not spans:
                raise ScheduleError(f"nothing writes {self._problem.storage_label(s)}, which must be kept")
            spans[-1] = (spans[-1][0], self._count)
        return [(born, last - self._takes(last, s)) for born, last in spans]

    def _takes(self, position: int, s: int) -> bool:
        """Does the op at a step run in place on `s` where it is its last reader?"""
        return position < self._count and self._problem.reuses[self.op_at(position)] == s

    def _dies(self, position: int, s: int) -> bool:
        """Is the instance of `s` that the step reads not read again?"""
        later = [(int(self._position[step]), step) for step in self._touching[s] if self._position[step] > position]
        if not later:
            return s not in self._kept
        return s in self._problem.writes[self._step_op[min(later)[1]]]

    def _check_runs(self, o: int) -> None:
        """The op runs as often as it may, and for the first time where the program order wants it."""
        label = self._problem.op_label(o)
        runs = self._runs[o]
        if self._problem.ops[o].once and len(runs) > 1:
            raise ScheduleError(f"{label} may run only once")
        if self._problem.ops[o].optional:
            return
        if not runs:
            raise ScheduleError(f"{label} never runs")
        before, after = self._neighbours[o]
        first = self._first(o)
        if (before is not None and self._first(before) > first) or (after is not None and self._first(after) < first):
            raise ScheduleError(f"step {first}: {label} runs for the first time out of the program order")

    def _first(self, o: int) -> int:
        return min(int(self._position[step]) for step in self._runs[o])

    def _attach(self, position: int, o: int, affected: frozenset[int]) -> None:
        """Insert a step; what stays alive across it is known from the step that follows it."""
        count, problem = self._count, self._problem
        if not 0 <= position <= count:
            raise IndexError(position)
        if position < count:
            follower = self.op_at(position)
            born = sum(problem.sizes[s] for s in problem.writes[follower] if s not in affected)
            base = int(self._total[position]) - problem.workspaces[follower] - born
            taken = problem.reuses[follower]
            if taken >= 0 and taken not in affected and self._dies(position, taken):
                base += problem.sizes[taken]
        else:
            base = problem.resident_bytes + sum(problem.sizes[s] for s in problem.kept if s not in affected)
        if count == len(self._total):
            self._total = np.concatenate([self._total, np.zeros(count + 16, dtype=np.int64)])
        self._total[position + 1 : count + 1] = self._total[position:count]
        self._total[position] = base + problem.workspaces[o]
        self._position[self._position >= position] += 1
        if self._free:
            step = self._free.pop()
        else:
            step = len(self._step_op)
            self._step_op.append(o)
            if step == len(self._position):
                self._position = np.concatenate([self._position, np.full(step + 16, -1, dtype=np.int64)])
        self._step_op[step] = o
        self._position[step] = position
        self._ids.insert(position, step)
        self._count += 1
        self._enlist(step, o)

    def _detach(self, position: int) -> None:
        """Take a step out; its storages must be out of the sums already."""
        step = self._ids.pop(position)
        o = self._step_op[step]
        self._runs[o].remove(step)
        for s in (*self._problem.reads[o], *self._problem.writes[o]):
            self._touching[s].remove(step)
        self._position[step] = -1
        self._position[self._position > position] -= 1
        self._free.append(step)
        self._total[position : self._count - 1] = self._total[position + 1 : self._count]
        self._count -= 1

    def _enlist(self, step: int, o: int) -> None:
        self._runs[o].append(step)
        for s in (*self._problem.reads[o], *self._problem.writes[o]):
            self._touching[s].append(step)
