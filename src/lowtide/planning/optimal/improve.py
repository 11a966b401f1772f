"""Improve the best schedule neighbourhood by neighbourhood until time is up or nothing moves."""

import random

from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.neighbourhood import Range, reoptimised, tight_positions
from lowtide.planning.optimal.stages import Stages, even_cuts

PATIENCE = 40
"""Neighbourhoods without a gain before the search ends."""


def improve(best: Incumbent, *, count: int = 16, horizon: int = 2, seconds: float = 2.0) -> None:
    """Free a range of values, or two half ranges, solve, keep what is better; ranges grow while they are easy."""
    if best.order is None:
        return
    facts = best.facts
    chance = random.Random(best.seed)
    cuts = even_cuts(facts, count)
    end = cuts[0] + 1
    width = max(20, end // 6)
    idle = turn = 0
    while idle < PATIENCE and not best.closed and best.left() > 0.5:
        turn += 1
        ranges = _ranges(chance, width, end, double=turn % 3 == 0)
        instants = sorted({*cuts, *tight_positions(facts, best.order, best.budget, count)})
        order, finished = reoptimised(
            facts,
            best.order,
            best.budget,
            instants=instants,
            stages=Stages(cuts, horizon),
            ranges=ranges,
            seconds=min(seconds, best.left()),
            nodes=None,
        )
        gained = order is not None and best.offer(order, "a neighbourhood")
        idle = 0 if gained else idle + 1
        width = min(end, int(width * 1.15) + 1) if finished else max(12, int(width * 0.8))


def _ranges(chance: random.Random, width: int, end: int, *, double: bool) -> list[Range]:
    if not double:
        low = chance.randrange(-width // 2, max(1, end - width // 2))
        return [(low, low + width)]
    half = max(6, width // 2)
    return [(low, low + half) for low in (chance.randrange(-half // 2, end) for _ in range(2))]
