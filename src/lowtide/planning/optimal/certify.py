"""Certified bounds: what single instants ask for, and proofs that a budget cannot be kept."""

import math

import numpy as np

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.instants import Model, Outcome
from lowtide.planning.optimal.work import meter


def hopeless_op(facts: Facts, budget: int) -> int | None:
    """An op of the program that alone needs more than the budget."""
    needs = [(int(facts.least[o]), o) for o in facts.problem.program]
    worst, o = max(needs, key=lambda entry: (entry[0], -entry[1]))
    return o if worst > budget else None


def candidate_instants(facts: Facts, budget: int, most: int) -> list[int]:
    """Positions over the budget to try: the highest of each stretch of the program, and the highest of all."""
    over = np.nonzero(facts.live > budget)[0]
    if len(over) <= most:
        return [int(k) for k in over]
    parts = np.array_split(over, most)
    highest = over[np.argsort(-facts.live[over], kind="stable")[: min(most, max(3, 16_000 // facts.count))]]
    return [*(int(k) for k in highest), *(int(part[np.argmax(facts.live[part])]) for part in parts)]


def ranked_instants(facts: Facts, budget: int, *, most: int, seconds: float) -> list[tuple[float, int]]:
    """(bound of the linear relaxation, position), the strongest first; infinite where the budget is impossible."""
    positions = candidate_instants(facts, budget, most)
    peak = int(facts.live.argmax())
    found = [
        (Model(facts, budget, [t], certify=True).relaxed(seconds=seconds), t) for t in dict.fromkeys([peak, *positions])
    ]
    return sorted(found, key=lambda entry: (-entry[0], entry[1]))


def solve_instant(facts: Facts, budget: int, instant: int, *, seconds: float) -> Outcome:
    """The integer program of one instant: a bound, and a decision to start from."""
    return Model(facts, budget, [instant], certify=True).solve(seconds=seconds, tolerance=1e-5)


def joint_bound(facts: Facts, budget: int, top: int, *, most: int, seconds: float) -> float:
    """What `top` and one, two, ... further instants ask for together, each chosen by the linear relaxation.

    They are positions that need many bytes themselves. Only for problems without optional ops.
    """
    until = meter().left() - seconds
    later = [k for k in range(top + 1, facts.count) if facts.live[k] > budget]
    parts = np.array_split(np.array(later, dtype=np.int64), min(most, len(later))) if later else []
    needs = facts.least[list(facts.problem.program)]
    positions = [int(part[np.argmax(needs[part])]) for part in parts]
    instants, bound = [top], 0.0

    def left() -> float:
        return meter().left() - until

    while left() > 0.2 * seconds:
        ranked: list[tuple[float, list[int]]] = []
        enough = 0.6 * left()
        for t in positions:
            if t not in instants and left() > enough:
                more = sorted((*instants, t))
                ranked.append((_joined(facts, budget, more).relaxed(seconds=0.5 * left()), more))
        if not ranked:
            break
        relaxed, instants = max(ranked)
        outcome = _joined(facts, budget, instants).solve(seconds=left(), tolerance=1e-5)
        bound = max(bound, relaxed, outcome.bound)
    return bound


def _joined(facts: Facts, budget: int, instants: list[int]) -> Model:
    return Model(facts, budget, instants, certify=True, joined=True)


def is_impossible(bound: float) -> bool:
    """Does a bound prove that nothing fits?"""
    return math.isinf(bound)
