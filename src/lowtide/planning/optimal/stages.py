"""Stages of the program: an op may run again only near its need, which leaves tens of instants easy to solve."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.instants import Allowed, Model
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS


def from_stages(best: Incumbent) -> None:
    """Tens of instants that stay easy, because an op runs again only in the stage of its need or the one before."""
    view = best.view
    for count, share in SETTINGS.stages:
        cuts = even_cuts(view, count)
        if len(cuts) < 2 or best.closed or best.left() < SETTINGS.worth_solving:
            return
        model = Model(view, best.budget, cuts, allowed=allowed_runs(view, cuts))
        outcome = model.solve(seconds=share * best.left(), tolerance=SETTINGS.gap_stages)
        if outcome.decision is not None:
            best.offer_decision(outcome.decision)


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


def allowed_runs(view: ProgramView, cuts: Sequence[int]) -> Allowed:
    """Per op the segments between cuts in which it may run again: that of a need, and the one before."""
    problem = view.problem
    needed: dict[int, set[int]] = {}
    for s, needs in view.needs.items():
        last = [bisect_left(cuts, k) - 1 for k in needs if k > cuts[0]]
        needed[s] = {j for segment in last for j in (max(0, segment - 1), segment)}
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
