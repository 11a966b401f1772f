"""Improve a schedule by solving a part of it anew: a few ranges of values are free, all others stay as they are."""

from collections.abc import Sequence

import numpy as np

from lowtide.planning.optimal.construct import build
from lowtide.planning.optimal.decision import read_off
from lowtide.planning.optimal.facts import Facts, live_bytes
from lowtide.planning.optimal.instants import Model
from lowtide.planning.optimal.stages import Stages, allowed_runs

Range = tuple[int, int]


def reoptimised(
    facts: Facts,
    order: Sequence[int],
    budget: int,
    *,
    instants: Sequence[int],
    stages: Stages,
    ranges: Sequence[Range],
    seconds: float,
    nodes: int | None,
) -> tuple[list[int] | None, bool]:
    """`order` with the values that the program writes within `ranges` decided anew; it may exceed the budget.

    None where the model sees nothing better. The flag says whether the model was solved to the end.
    """
    problem = facts.problem
    current = read_off(facts, order, instants)

    def free(s: int) -> bool:
        k = facts.born.get(s)
        if k is None:
            k = max((facts.born.get(r, -1) for o in problem.producers[s] for r in problem.reads[o]), default=-1)
        return any(low <= k < high for low, high in ranges)

    staged = allowed_runs(facts, instants, stages)
    movable = [any(free(s) for s in problem.writes[o]) for o in range(len(problem.ops))]
    allowed = [segments if movable[o] else set() for o, segments in enumerate(staged)]
    for j, runs in enumerate(current.runs):
        for o in runs:
            allowed[o] = allowed[o] | {j}
    model = Model(facts, budget, instants, allowed=allowed, around=current)
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
    outcome = model.solve(seconds=seconds, tolerance=1e-4, nodes=nodes, start=current)
    before = float(np.dot(start, np.array(model.program.cost)))
    if outcome.decision is None or outcome.objective >= before - 1e-9 * max(before, 1.0):
        return None, outcome.finished
    return build(facts, outcome.decision), outcome.finished


def tight_positions(facts: Facts, order: Sequence[int], budget: int, count: int) -> list[int]:
    """Up to `count` program positions where the order comes nearest to the budget, the worst of each part."""
    live = live_bytes(facts.problem, order)
    at: dict[int, int] = {}
    done = 0
    for step, o in enumerate(order):
        at[done] = max(at.get(done, 0), int(live[step]))
        done += facts.position[o] == done
    width = max(1, facts.count // (4 * count))
    best: dict[int, int] = {}
    for k, size in at.items():
        if k < facts.count and size > at.get(best.get(k // width, -1), -1):
            best[k // width] = k
    return sorted(sorted(best.values(), key=lambda k: (-at[k], k))[:count])
