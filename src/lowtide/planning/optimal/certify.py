"""Certified bounds: what single instants ask for, and proofs that a budget cannot be kept."""

import math

import numpy as np

from lowtide.planning.optimal.incumbent import Impossible, Incumbent
from lowtide.planning.optimal.instants import Model, Outcome
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS


def rank_instants(best: Incumbent) -> None:
    """Single instants by their linear relaxation: the strongest is where bytes are scarcest."""
    most = SETTINGS.ranked if best.is_small else SETTINGS.ranked_large
    best.ranked = ranked_instants(best.view, best.budget, most=most, seconds=SETTINGS.ranking_seconds)
    if math.isinf(best.ranked[0][0]):
        raise Impossible
    best.raise_bound(best.ranked[0][0])


def solve_instants(best: Incumbent) -> None:
    """The integer programs of the strongest instants: bounds, and decisions to start from."""
    strongest = best.ranked[0][0]
    for relaxed, instant in best.ranked[: SETTINGS.solved]:
        if relaxed < SETTINGS.comparable * strongest:
            break
        outcome = solve_instant(best.view, best.budget, instant, seconds=SETTINGS.solving * best.left())
        if math.isinf(outcome.bound):
            raise Impossible
        best.raise_bound(outcome.bound)
        if outcome.decision is not None:
            order = best.offer_decision(outcome.decision)
            room = best.budget - best.view.problem.resident_bytes
            best.near = best.near and order is not None and best.over(order) < SETTINGS.near * room


def ranked_instants(view: ProgramView, budget: int, *, most: int, seconds: float) -> list[tuple[float, int]]:
    """(bound of the linear relaxation, position), the strongest first; infinite where the budget is impossible."""
    positions = candidate_instants(view, budget, most)
    peak = int(view.live.argmax())
    found = [
        (Model(view, budget, [t], certify=True).relaxed(seconds=seconds), t) for t in dict.fromkeys([peak, *positions])
    ]
    return sorted(found, key=lambda entry: (-entry[0], entry[1]))


def candidate_instants(view: ProgramView, budget: int, most: int) -> list[int]:
    """Positions over the budget to try: the highest of each stretch of the program, and the highest of all."""
    over = np.nonzero(view.live > budget)[0]
    if len(over) <= most:
        return [int(k) for k in over]
    parts = np.array_split(over, most)
    fewest, ops = SETTINGS.highest
    highest = over[np.argsort(-view.live[over], kind="stable")[: min(most, max(fewest, ops // view.count))]]
    return [*(int(k) for k in highest), *(int(part[np.argmax(view.live[part])]) for part in parts)]


def solve_instant(view: ProgramView, budget: int, instant: int, *, seconds: float) -> Outcome:
    """The integer program of one instant: a bound, and a decision to start from."""
    return Model(view, budget, [instant], certify=True).solve(seconds=seconds, tolerance=SETTINGS.gap_one)
