"""Swaps that are decided, written into the program, so that a planner who knows no lanes can do the rest.

A swapped value leaves before one position of the program and returns before another. The program gets an op at each;
what reads the value later reads the one that returned, and an op of forward that reads it can run again on that one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.problem import COMPUTE, Op, Problem, Storage
from lowtide.planning.swaps import Swap


@dataclass(frozen=True, slots=True)
class Absence:
    """A swap that is decided: gone before position `leaves` of the program, there again before `returns`."""

    swap: Swap
    leaves: int
    returns: int


@dataclass(frozen=True)
class Arranged:
    """A problem without lanes, and what its ops are in the problem that it was made from."""

    problem: Problem
    original: tuple[int, ...]
    """Per op the op of the problem with lanes that it stands for."""

    def with_swaps(self, swaps: Sequence[Swap], order: Sequence[int]) -> tuple[int, ...]:
        """`order` in terms of the problem with lanes; a value's offload starts as soon as it is made."""
        started: dict[int, int] = {}
        for swap in swaps:
            started[swap.storage] = swap.offload
        found: list[int] = []
        for step in order:
            found.append(self.original[step])
            for s in self.problem.writes[step]:
                if s in started:
                    found.append(started.pop(s))
        return tuple(found)


def without_lanes(problem: Problem) -> Arranged:
    """`problem` as if nothing could be swapped."""
    return arrange(problem, ())


def arrange(problem: Problem, absences: Sequence[Absence]) -> Arranged:
    """`problem` with these swaps decided and no others possible."""
    away = {s for s, storage in enumerate(problem.storages) if storage.off_device}
    gone = [Storage(0, resident=True, name=s.name) if k in away else s for k, s in enumerate(problem.storages)]
    storages = list(gone)
    returned: dict[int, int] = {}
    leaving: dict[int, list[Absence]] = {}
    returning: dict[int, list[Absence]] = {}
    for absence in absences:
        returned[absence.swap.storage] = len(storages)
        storages.append(replace(storages[absence.swap.storage], name="", resident=False))
        leaving.setdefault(absence.leaves, []).append(absence)
        returning.setdefault(absence.returns, []).append(absence)
    ops: list[Op] = []
    original: list[int] = []
    here: dict[int, int] = {}
    twins: list[tuple[int, Op]] = []

    def add(o: int, op: Op) -> None:
        ops.append(op)
        original.append(o)

    for k, o in enumerate(problem.program):
        for absence in leaving.get(k, ()):
            release = problem.ops[absence.swap.release]
            add(absence.swap.release, replace(release, reads=(absence.swap.storage,), once=True, optional=False))
        for absence in returning.get(k, ()):
            s = absence.swap.storage
            add(absence.swap.prefetch, Op(f"return {s}", 0.0, (), (returned[s],), once=True))
            here[s] = returned[s]
        op = problem.ops[o]
        add(o, _reading(op, here))
        later = {s: returned[s] for s in op.reads if s in returned and s not in here}
        if later and not op.once:
            twins.append((o, replace(_reading(op, returned), optional=True)))
    for o, op in enumerate(problem.ops):
        if op.optional and op.lane == COMPUTE and away.isdisjoint((*op.reads, *op.writes)):
            add(o, op)
    for o, op in twins:
        add(o, op)
    return Arranged(Problem(problem.name, tuple(storages), tuple(ops)), tuple(original))


def _reading(op: Op, instead: Mapping[int, int]) -> Op:
    """`op` with other storages in the place of those that it reads."""
    reads = tuple(instead.get(s, s) for s in op.reads)
    return replace(op, reads=reads, reuses=None if op.reuses is None else instead.get(op.reuses, op.reuses))


def absences(problem: Problem, view: ProgramView, chosen: Sequence[Swap], instant: int) -> list[Absence]:
    """When each of `chosen` is gone: at `instant`, and around it as far as the copies leave it by the program's clock.

    Offloads start as values are made, one behind the other; prefetches start as late as their readers allow.
    """
    begins = start_times(view)
    first = {}
    free = 0.0
    for swap in sorted(chosen, key=lambda swap: view.born[swap.storage]):
        born = view.born[swap.storage]
        free = max(free, begins[born + 1]) + problem.times[swap.offload]
        used = max([k for k in view.needs[swap.storage] if k < instant], default=born)
        after = next((k for k in range(used + 1, instant) if begins[k] >= free), instant)
        first[swap.storage] = after
    found = []
    latest = begins[-1]
    for swap in sorted(chosen, key=lambda swap: -next_need(view, swap.storage, instant)):
        need = next_need(view, swap.storage, instant)
        latest = min(latest, begins[need]) - problem.times[swap.prefetch]
        before = next((k for k in range(need, instant, -1) if begins[k] <= latest), instant + 1)
        found.append(Absence(swap, first[swap.storage], before))
    return found


def next_need(view: ProgramView, s: int, instant: int) -> int:
    """The first position after `instant` that reads `s`."""
    return next(k for k in view.needs[s] if k > instant)


def start_times(view: ProgramView) -> list[float]:
    """When each position of the program begins, and the program ends."""
    begins = [0.0]
    for o in view.problem.program:
        begins.append(begins[-1] + view.problem.times[o])
    return begins
