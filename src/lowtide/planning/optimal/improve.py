"""Improve the best schedule neighbourhood by neighbourhood until time is up or nothing moves."""

import random
from collections.abc import Iterator

from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.neighbourhood import Range, reoptimised, tight_positions
from lowtide.planning.optimal.stages import Stages, even_cuts

PATIENCE = 40
"""Neighbourhoods without a gain before the search ends."""

TOGETHER = 0.2
"""Share of the time after which all values together are not begun again."""


def improve(best: Incumbent, *, count: int = 16, horizon: int = 2) -> None:
    """Free all values but only near their need, then ranges of values with more freedom; keep what is better."""
    if best.order is None:
        return
    facts = best.facts
    cuts = even_cuts(facts, count)
    end = cuts[0] + 1
    everything: list[Range] = [(-1, facts.count)]
    until = (1 - TOGETHER) * best.left()
    for near in (1, 0):
        while not best.closed and best.left() > max(1.0, until):
            instants = sorted({*cuts, *tight_positions(facts, best.order, best.budget, count)})
            stages = Stages(tuple(instants), near)
            order, _ = reoptimised(
                facts,
                best.order,
                best.budget,
                instants=instants,
                stages=stages,
                ranges=everything,
                seconds=min(0.2 * best.left(), 6.0),
                nodes=None,
            )
            if order is None or not best.offer(order, "all values near their need"):
                break
    chance = random.Random(best.seed + 1000 * best.rounds)
    best.rounds += 1
    width = max(20, end // 6)
    idle = turn = 0
    while idle < PATIENCE and not best.closed and best.left() > 0.5:
        turn += 1
        instants = sorted({*cuts, *tight_positions(facts, best.order, best.budget, count)})
        order, finished = reoptimised(
            facts,
            best.order,
            best.budget,
            instants=instants,
            stages=Stages(cuts, horizon),
            ranges=list(_ranges(chance, width, end, double=turn % 3 == 0)),
            seconds=min(1.5, best.left()),
            nodes=None,
        )
        gained = order is not None and best.offer(order, "a range of values")
        idle = 0 if gained else idle + 1
        width = min(end, int(width * 1.15) + 1) if finished else max(12, int(width * 0.8))


def _ranges(chance: random.Random, width: int, end: int, *, double: bool) -> Iterator[Range]:
    if not double:
        low = chance.randrange(-width // 2, max(1, end - width // 2))
        yield low, low + width
        return
    half = max(6, width // 2)
    for _ in range(2):
        low = chance.randrange(-half // 2, end)
        yield low, low + half
