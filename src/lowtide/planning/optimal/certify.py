"""Certified bounds: what single instants ask for, and proofs that a budget cannot be kept."""

import math

import numpy as np

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.instants import Model, Outcome


def hopeless_op(facts: Facts, budget: int) -> int | None:
    """An op of the program that alone needs more than the budget."""
    needs = [(int(facts.least[o]), o) for o in facts.problem.program]
    worst, o = max(needs, key=lambda entry: (entry[0], -entry[1]))
    return o if worst > budget else None


def candidate_instants(facts: Facts, budget: int, most: int) -> list[int]:
    """Positions over the budget to try: the highest of each stretch of the program."""
    over = np.nonzero(facts.live > budget)[0]
    if len(over) <= most:
        return [int(k) for k in over]
    parts = np.array_split(over, most)
    return [int(part[np.argmax(facts.live[part])]) for part in parts]


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


def is_impossible(bound: float) -> bool:
    """Does a bound prove that nothing fits?"""
    return math.isinf(bound)
