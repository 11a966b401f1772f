"""Improve the best schedule by solving a part of it anew: a few ranges of values are free, all others stay."""

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.planning.optimal.decision import build, read_off
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.instants import Allowed, Model
from lowtide.planning.optimal.program_view import ProgramView, most_bytes
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance, working_within

Range = tuple[int, int]
"""Program positions from the first up to, not including, the second."""


def improve(best: Incumbent) -> None:
    """Free all values but only near their need, then ranges of values with more freedom; keep what is better."""
    with working_within(allowance().keeping(best.walk_share)):  # for the walk that follows
        _improve(best)


def _improve(best: Incumbent) -> None:
    if best.order is None:
        return
    view = best.view
    cuts = even_cuts(view, SETTINGS.cuts)
    end = cuts[0] + 1
    until = (1 - SETTINGS.together) * best.left()
    for near in (1, 0):
        while not best.closed and best.left() > max(SETTINGS.worth_solving, until):
            instants = _instants(best, cuts)
            part = Part(Stages(tuple(instants), near), ((-1, view.count),))
            seconds = min(SETTINGS.together_share * best.left(), SETTINGS.together_seconds)
            order, _ = reoptimised(view, best.order, best.budget, instants, part, seconds=seconds)
            if order is None or not best.offer(order):
                break
    chance = random.Random(best.seed + SETTINGS.seeds * best.rounds)
    best.rounds += 1
    width = max(SETTINGS.range_least, end // SETTINGS.range_part)
    idle = turn = 0
    while idle < SETTINGS.patience and not best.closed and best.left() > SETTINGS.range_left:
        turn += 1
        ranges = _ranges(chance, width, end, double=turn % SETTINGS.range_double == 0)
        part = Part(Stages(cuts, SETTINGS.horizon), tuple(ranges))
        seconds = min(SETTINGS.range_seconds, best.left())
        order, finished = reoptimised(view, best.order, best.budget, _instants(best, cuts), part, seconds=seconds)
        gained = order is not None and best.offer(order)
        idle = 0 if gained else idle + 1
        wider, narrower = int(width * SETTINGS.range_wider) + 1, int(width * SETTINGS.range_narrower)
        width = min(end, wider) if finished else max(SETTINGS.range_narrowest, narrower)


def _instants(best: Incumbent, cuts: Sequence[int]) -> list[int]:
    """The cuts, and where the best order comes nearest to the budget."""
    assert best.order is not None
    return sorted({*cuts, *tight_positions(best.view, best.order, SETTINGS.cuts)})


def _ranges(chance: random.Random, width: int, end: int, *, double: bool) -> Iterator[Range]:
    if not double:
        low = chance.randrange(-width // 2, max(1, end - width // 2))
        yield low, low + width
        return
    half = max(SETTINGS.range_half, width // 2)
    for _ in range(2):
        low = chance.randrange(-half // 2, end)
        yield low, low + half


@dataclass(frozen=True)
class Stages:
    """The program cut into stages at `cuts`; ops run again in the stage of the need or `horizon` stages before."""

    cuts: tuple[int, ...]
    horizon: int

    def of(self, position: int) -> int:
        """The stage a position belongs to: stage i ends with position cuts[i]."""
        return bisect_left(self.cuts, position)


@dataclass(frozen=True)
class Part:
    """What is decided anew: values that the program writes within `ranges`, made again as the stages allow."""

    stages: Stages
    ranges: Sequence[Range]


def reoptimised(
    view: ProgramView, order: Sequence[int], budget: int, instants: Sequence[int], part: Part, *, seconds: float
) -> tuple[list[int] | None, bool]:
    """`order` with a part of it decided anew; it may exceed the budget. None where the model sees nothing better.

    The flag says whether the model was solved to the end.
    """
    problem = view.problem
    current = read_off(view, order, instants)

    def free(s: int) -> bool:
        k = view.born.get(s)
        if k is None:
            k = max((view.born.get(r, -1) for o in problem.producers[s] for r in problem.reads[o]), default=-1)
        return any(low <= k < high for low, high in part.ranges)

    movable = [any(free(s) for s in problem.writes[o]) for o in range(len(problem.ops))]
    staged = allowed_runs(view, instants, part.stages)
    allowed = [segments if movable[o] else set() for o, segments in enumerate(staged)]
    for j, runs in enumerate(current.runs):
        for o in runs:
            allowed[o] = allowed[o] | {j}
    model = Model(view, budget, instants, allowed=allowed, around=current)
    if model.impossible:
        return None, True
    start = model.values_of(current)
    lower, upper = model.program.lower, model.program.upper
    for keep in model.keep:
        for s, column in keep.items():
            if not free(s):
                lower[column] = upper[column] = start[column]
    for run in model.run:
        for o, column in run.items():
            if not movable[o]:
                lower[column] = upper[column] = start[column]
    outcome = model.solve(seconds=seconds, start=current)
    before = float(np.dot(start, np.array(model.program.cost)))
    if outcome.decision is None or outcome.objective >= before - SETTINGS.smallest * max(before, 1.0):
        return None, outcome.finished
    return build(view, outcome.decision), outcome.finished


def tight_positions(view: ProgramView, order: Sequence[int], count: int) -> list[int]:
    """Up to `count` program positions where the order has most bytes alive, the worst of each part."""
    at = most_bytes(view, order)
    width = max(1, view.count // (SETTINGS.tight_parts * count))
    best: dict[int, int] = {}
    for k, size in at.items():
        if size > at.get(best.get(k // width, -1), -1):
            best[k // width] = k
    return sorted(sorted(best.values(), key=lambda k: (-at[k], k))[:count])


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
