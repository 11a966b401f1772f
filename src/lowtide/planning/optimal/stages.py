"""Where an op may run again: in the stage of the program that reads what it makes, or a few stages before."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.planning.optimal.program_view import ProgramView

Allowed = list[set[int]]
"""Per op the segments between instants in which it may run again."""


@dataclass(frozen=True)
class Stages:
    """The program cut into stages at `cuts`; ops run again in the stage of the need or `horizon` stages before."""

    cuts: tuple[int, ...]
    horizon: int

    def of(self, position: int) -> int:
        """The stage a position belongs to: stage i ends with position cuts[i]."""
        return bisect_left(self.cuts, position)


def even_cuts(view: ProgramView, count: int) -> tuple[int, ...]:
    """The peak of the program order and positions after it, between which it frees equal shares of its bytes."""
    live, resident = view.live, view.problem.resident_bytes
    peak = int(live.argmax())
    cuts = [peak]
    for i in range(1, count):
        level = resident + (int(live[peak]) - resident) * (1 - i / count)
        position = int(np.nonzero(live >= level)[0][-1])
        if position > cuts[-1]:
            cuts.append(position)
    return tuple(cuts)


def allowed_runs(view: ProgramView, instants: Sequence[int], stages: Stages) -> Allowed:
    """The segments in which the stages let each op run again."""
    problem = view.problem
    ends = [*instants[1:], view.count]
    by_stage: dict[int, set[int]] = {}
    for j, t in enumerate(instants):
        for stage in range(stages.of(t + 1), stages.of(ends[j]) + 1):
            by_stage.setdefault(stage, set()).add(j)
    near: dict[int, set[int]] = {
        stage: set().union(*(by_stage.get(q, set()) for q in range(stage - stages.horizon, stage + 1)))
        for stage in range(len(stages.cuts) + 1)
    }
    needed = {
        s: set().union(*(near[stages.of(k)] for k in needs if k > instants[0])) for s, needs in view.needs.items()
    }
    allowed: Allowed = [set() for _ in problem.ops]
    for o in [o for o, op in enumerate(problem.ops) if op.optional] + list(problem.program[::-1]):
        if problem.ops[o].once or o in view.futile:
            continue
        mine = allowed[o]
        for s in problem.writes[o]:
            segments = needed.get(s, set())
            mine |= segments
            if not segments or len(problem.producers[s]) > 1:
                for reader in problem.readers[s]:
                    mine |= allowed[reader]
    return allowed
