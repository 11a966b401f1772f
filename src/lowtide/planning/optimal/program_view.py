"""What the optimal planner needs to know of a problem, worked out once: who reads what when, and bytes alive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.lifetimes import Bytes, alive_bytes, live_bytes
from lowtide.planning.optimal.packing import Packing, packings, pairs, unpacked
from lowtide.planning.problem import Problem


@dataclass(frozen=True)
class ProgramView:
    """A problem seen by program position: position k is the first run of the k-th op of the program."""

    problem: Problem
    packing: Mapping[int, Packing] = field(default_factory=dict)
    """In a problem without optional ops: what may wait smaller, as bounds count it."""

    @cached_property
    def plain(self) -> "ProgramView":
        """The program without optional ops, for bounds: what these could make again may wait smaller, at a price."""
        if not any(op.optional for op in self.problem.ops):
            return self
        return ProgramView(unpacked(self.problem), packings(self.problem))

    @cached_property
    def pairs(self) -> dict[int, tuple[int, int]]:
        """Per storage that can be packed the cheapest op that does it, and the one that makes it again."""
        return pairs(self.problem)

    @cached_property
    def count(self) -> int:
        """Ops of the program."""
        return len(self.problem.program)

    @cached_property
    def born(self) -> dict[int, int]:
        """Program position that writes a storage; what only optional ops write has none."""
        return {s: k for k, o in enumerate(self.problem.program) for s in self.problem.writes[o]}

    @cached_property
    def needs(self) -> dict[int, list[int]]:
        """Program positions that read a storage, in order; the end of the program for what must be kept."""
        found: dict[int, list[int]] = {}
        for k, o in enumerate(self.problem.program):
            for s in self.problem.reads[o]:
                found.setdefault(s, []).append(k)
        for s in self.problem.kept:
            found.setdefault(s, []).append(self.count)
        return found

    @cached_property
    def last(self) -> dict[int, int]:
        """Program position that needs a storage last: the one that writes it where nothing reads it."""
        return {s: self.needs[s][-1] if s in self.needs else k for s, k in self.born.items()}

    @cached_property
    def position(self) -> tuple[int, ...]:
        """Per op its program position, -1 for optional ones."""
        found = [-1] * len(self.problem.ops)
        for k, o in enumerate(self.problem.program):
            found[o] = k
        return tuple(found)

    @cached_property
    def futile(self) -> frozenset[int]:
        """Optional ops whose every reader only makes again what they read: a pack, seen from one instant on.

        Running them after the last instant cannot help, since what they read is at hand already.
        """
        problem = self.problem
        return frozenset(
            o
            for o, op in enumerate(problem.ops)
            if op.optional
            and not any(s in self.born or s in self.problem.kept for s in op.writes)
            and all(
                problem.ops[q].optional and set(problem.writes[q]) <= set(problem.reads[o])
                for s in op.writes
                for q in problem.readers[s]
            )
        )

    def first_time(self, s: int) -> float:
        """The least share of an optional op's time that having a storage at all costs, where only such ops write it."""
        problem = self.problem
        return min(problem.times[o] / sum(r not in self.born for r in problem.writes[o]) for o in problem.producers[s])

    @cached_property
    def live(self) -> Bytes:
        """Bytes alive at each position of the program order."""
        return live_bytes(self.problem, self.problem.program)

    @cached_property
    def least(self) -> Bytes:
        """Per op the bytes that any schedule has alive while it runs, in place where it can."""
        problem, sizes = self.problem, self.problem.sizes
        return np.array(
            [
                problem.resident_bytes
                + problem.workspaces[o]
                + sum(sizes[s] for s in problem.reads[o])
                + sum(sizes[s] for s in problem.writes[o])
                - (sizes[problem.reuses[o]] if problem.reuses[o] >= 0 else 0)
                for o in range(len(problem.ops))
            ],
            dtype=np.int64,
        )


def bytes_since(view: ProgramView, top: int) -> NDArray[np.float64]:
    """Per position the bytes that its op, and what the program made since `top` and still reads, take by themselves."""
    problem, sizes = view.problem, view.problem.sizes
    made = [s for s, k in view.born.items() if k >= top]
    alive = alive_bytes(
        [view.born[s] for s in made], [view.last[s] for s in made], [sizes[s] for s in made], view.count
    )
    reads = [sum(sizes[s] for s in problem.reads[o] if view.born[s] < top) for o in problem.program]
    workspaces = [problem.workspaces[o] for o in problem.program]
    return np.asarray(alive + np.array(reads) + np.array(workspaces), dtype=np.float64)


def gap_positions(view: ProgramView, order: Sequence[int]) -> list[tuple[int, bool]]:
    """Per step: the program position it stands at or before, and whether it is that position's first run."""
    found: list[tuple[int, bool]] = []
    done, position = 0, view.position
    for o in order:
        first = position[o] == done
        found.append((done, first))
        done += first
    return found


def extra_steps(view: ProgramView, order: Sequence[int]) -> list[int]:
    """Steps that are not a program op's first run."""
    return [step for step, (_, first) in enumerate(gap_positions(view, order)) if not first]
