"""Stages that ask integer programs of instants: for bounds, for proofs that nothing fits, and for plans."""

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from lowtide.planning.optimal.incumbent import Impossible, Incumbent
from lowtide.planning.optimal.instants import Allowed, Model
from lowtide.planning.optimal.lifetimes import live_bytes
from lowtide.planning.optimal.program_view import ProgramView, gap_positions
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
        model = Model(best.view, best.budget, [instant], certify=True)
        outcome = model.solve(seconds=SETTINGS.solving * best.left(), tolerance=SETTINGS.gap_one)
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


def from_instants(best: Incumbent) -> None:
    """Solve for a few instants, add those where the simulation breaks the budget, and so on.

    In a small program two are added at a time, and it may end with the best there is. With optional ops only single
    instants certify.
    """
    view, budget = best.view, best.budget
    small = best.is_small
    rounds, at_once = (SETTINGS.more_rounds, SETTINGS.more_at_once) if small else (SETTINGS.more_rounds_large, 1)
    instants = [best.top]
    certify = not view.futile
    seconds = SETTINGS.more_instants * best.left()
    until = (1 - SETTINGS.more_far) * best.left()
    for _ in range(rounds):
        if best.closed or best.left() < SETTINGS.worth_solving or (best.left() < until and best.far):
            break
        outcome = Model(view, budget, instants, certify=certify).solve(seconds=min(seconds, best.left()))
        if certify:
            best.raise_bound(outcome.bound)
        if outcome.decision is None:
            break
        order = best.offer_decision(outcome.decision)
        if order is None or not outcome.finished:
            break
        new = _worst(best, order, instants, at_once)
        if not new:
            break
        instants = sorted([*instants, *new])


def _worst(best: Incumbent, order: list[int], instants: Sequence[int], most: int) -> list[int]:
    """Positions at which, or before which, an order exceeds the budget most: no instants, and none near another."""
    view, over = best.view, dict[int, int]()
    for (k, _), size in zip(gap_positions(view, order), live_bytes(view.problem, order).tolist(), strict=True):
        if k < view.count and size > best.budget:
            over[k] = max(over.get(k, 0), size - best.budget)
    found: list[int] = []
    for k in sorted(over, key=lambda k: (-over[k], k)):
        if (
            len(found) < most
            and k not in instants
            and all(abs(k - q) > view.count // SETTINGS.more_apart for q in found)
        ):
            found.append(k)
    return found


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
