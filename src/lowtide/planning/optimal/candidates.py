"""Where good schedules come from: other policies, a few instants, stages with a horizon, the chain of blocks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lowtide.planning.optimal.alike import Intervals, own_storages, repeats
from lowtide.planning.optimal.beam import Beam
from lowtide.planning.optimal.blocks import Blocks, find_blocks, find_narrow_blocks
from lowtide.planning.optimal.chain import Chain
from lowtide.planning.optimal.construct import build
from lowtide.planning.optimal.facts import gap_positions, live_bytes
from lowtide.planning.optimal.groups import group_options
from lowtide.planning.optimal.incumbent import LONG, Incumbent, Plain
from lowtide.planning.optimal.instants import Model
from lowtide.planning.optimal.nested import Nested
from lowtide.planning.optimal.options import Option, Span, span_options, undominated
from lowtide.planning.optimal.passes import Passes
from lowtide.planning.optimal.regrow.taste import Taste
from lowtide.planning.optimal.stages import Stages, allowed_runs, even_cuts
from lowtide.planning.optimal.work import STEP, charge
from lowtide.planning.policies import BudgetInfeasible, policy
from lowtide.planning.simulate import time_of

if TYPE_CHECKING:
    from lowtide.planning.optimal.regrow.regrowth import Regrowth

ONWARD = (Taste(hot=0.6, cold=0.006), Taste(hot=0.2, cold=0.004), Taste(hot=1.5, cold=0.01))
"""How walks from the best order go, one after the other."""

ANEW = (Taste(hot=10.0, cold=0.01, most=40), Taste(hot=1.0, cold=0.01, pool=3, most=40), Taste(hot=3.0, cold=0.01))
"""How walks from the program go: hot, since where they begin is of no worth."""

FIRST = (
    *[(0.025, Taste(hot=1.0, cold=0.01, pool=3, most=40))] * 20,
    *(
        (0.1, Taste(hot=1.0, cold=0.01, pool=pool, most=most))
        for pool, most in ((3, 40), (12, 40), (3, 40), (40, 40), (3, 100))
    ),
)
"""Walks where no order within the budget is known, with their shares of the work: many short ones, then longer ones."""

REPEATED = 4
"""One of so many walks towards a first plan begins from the order with the least peak, the others from the program."""

PARTS = (97, 93)
"""Per cent of the room for which the bound along the spine is asked what it stores."""

WALKS = 1000
"""Between the seeds of two walks: a walk takes one for each part of its work."""

NESTED_LEFT = 0.6
"""Share of the time left that the dynamic program over small blocks leaves to what comes after it."""

WAYS = (1e4, 4.0, 2.5, 1.6, 1.0, 0.6, 0.4, 0.25, 0.12, 0.0)
"""Prices of a byte by which small blocks save, as multiples of the one at the peak."""

BEAM = 0.4
"""Share of the work left that a beam may take where there is no plan yet; a quarter of it where there is one."""

INSTANTS = 0.05
"""Share of the work left that ever more instants may take where the best plan is far from the bound."""

FINER, FINE = (8, 4, 2), 0.1
"""Parts of a percent that a table may have per level, and the share of what is left that it may take for them."""


def from_policies(best: Incumbent) -> None:
    """What `chen` and `mutwo` find, so that the plan is never worse than theirs."""
    for name in ("chen", "mutwo"):
        try:
            charge(50 * STEP * best.facts.count)
            plan = policy(name).plan(best.facts.problem, best.budget, time_limit=math.inf)
        except BudgetInfeasible:
            continue
        order = plan.schedule.ops
        best.offer(order, name, prunings=3 if len(order) < LONG * best.facts.count else 0)


def from_instants(best: Incumbent, instants: list[int], *, rounds: int, seconds: float, at_once: int = 1) -> list[int]:
    """Solve for a few instants, add those where the simulation breaks the budget, and so on; the instants reached."""
    facts, budget = best.facts, best.budget
    plain = not facts.futile
    reserve: dict[int, int] = {}
    until = (1 - INSTANTS) * best.left()
    for _ in range(rounds):
        if best.closed or best.left() < 1 or (best.left() < until and best.far):
            break
        model = Model(facts, budget, instants, reserve, certify=plain)
        outcome = model.solve(seconds=min(seconds, best.left()))
        if plain and not reserve:
            best.raise_bound(outcome.bound)
        if outcome.decision is None:
            break
        order = best.offer_decision(outcome.decision, f"{len(instants)} instants")
        if order is None or not outcome.finished:
            break
        worst = sorted(_violations(best, order).items(), key=lambda entry: (-entry[1], entry[0]))
        if not worst:
            break
        _add(_apart(worst, at_once, instants, facts.count // 50) or worst[:1], instants, reserve)
    return instants


def _violations(best: Incumbent, order: list[int]) -> dict[int, int]:
    """Per program position by how much the order exceeds the budget at it or in the gap before it, where it does."""
    live = live_bytes(best.facts.problem, order)
    found: dict[int, int] = {}
    for (k, _), size in zip(gap_positions(best.facts, order), live.tolist(), strict=True):
        if size - best.budget > found.get(k, 0) and k < best.facts.count:
            found[k] = size - best.budget
    return found


def _apart(
    worst: Sequence[tuple[int, int]], most: int, instants: Sequence[int], distance: int
) -> list[tuple[int, int]]:
    """The first of `worst` that are no instants yet and not within a distance of each other."""
    found: list[tuple[int, int]] = []
    for k, over in worst:
        if len(found) < most and k not in instants and all(abs(k - q) > distance for q, _ in found):
            found.append((k, over))
    return found


def _add(worst: Sequence[tuple[int, int]], instants: list[int], reserve: dict[int, int]) -> None:
    """Positions over the budget become instants, or get a reserve where they are."""
    for k, over in worst:
        if k in instants:
            reserve[k] = reserve.get(k, 0) + over
        else:
            instants.append(k)
    instants.sort()


def from_stages(best: Incumbent, count: int, horizon: int, *, seconds: float) -> None:
    """Tens of instants with runs kept near their need."""
    facts = best.facts
    cuts = even_cuts(facts, count)
    if len(cuts) < 2 or best.closed or best.left() < 1:
        return
    model = Model(facts, best.budget, cuts, allowed=allowed_runs(facts, cuts, Stages(cuts, horizon)))
    outcome = model.solve(seconds=min(seconds, best.left()), tolerance=1e-3)
    if outcome.decision is not None:
        best.offer_decision(outcome.decision, f"{count} stages")


def from_chain(best: Incumbent, count: int, lengths: Sequence[int], price: float) -> None:
    """The dynamic program over blocks, with options at prices around what a byte is worth at the peak."""
    facts = best.facts
    blocks = find_blocks(facts, count)
    if blocks is None or best.closed:
        return
    prices = [0.0, *(price * factor for factor in (0.5, 1.0, 1.6, 3.0, 12.0))]
    until = best.left() * 0.75
    priced: dict[Span, list[Option]] = {}
    for span in _spans(blocks.count, lengths):
        if best.left() < until:
            break
        priced[span] = span_options(blocks, span, prices)
    if len(priced) < blocks.count:
        return
    singles = [priced[b, b + 1] for b in range(blocks.count)]
    for span, groups in group_options(blocks, singles, 2 * max(lengths)).items():
        priced.setdefault(span, []).extend(groups)
    options = {span: undominated(found) for span, found in priced.items()}
    room = best.budget - facts.problem.resident_bytes
    for share in (1.0, 0.95):
        decision = Chain(blocks, options, max(1, int(room * share))).decision()
        if decision is not None:
            order = build(facts, decision)
            if order is not None:
                best.offer(order, f"a chain of {blocks.count} blocks")


def from_nested(best: Incumbent, most: int, price: float, percents: Sequence[int]) -> bool:
    """The dynamic program over many small blocks, for the room and for more, which repair takes back; was it better?"""
    facts = best.facts
    blocks = find_narrow_blocks(facts, most)
    if blocks is None or best.closed:
        return False
    like = repeats(blocks)
    intervals = Intervals(like)
    until = best.left() * NESTED_LEFT
    before, whole = best.extra, max(percents)
    room = best.budget - facts.problem.resident_bytes
    passes = _passes(best, blocks, like, [price * factor for factor in WAYS], until)
    if passes is None or best.left() < 2 * Nested.work(intervals, passes.ways, whole):
        return False
    fine = [n for n in FINER if Nested.work(intervals, passes.ways, n * whole) < FINE * best.left()]
    parts = fine[0] if fine else 1
    nested = Nested(blocks, passes, max(1, room * whole // 100), intervals, levels=parts * whole)
    for percent in percents:
        if percent != percents[0] and best.left() < until:
            break
        decision = nested.decision(parts * percent)
        if decision is not None:
            best.offer_decision(decision, f"{blocks.count} nested blocks in {percent} % of the room")
    return best.extra < before


def _passes(
    best: Incumbent, blocks: Blocks, like: Sequence[int], prices: Sequence[float], until: float
) -> Passes | None:
    """The ways of saving of each block, worked out once for those that are alike; None where that takes too long."""
    options: list[list[Option]] = []
    for b, first in enumerate(like):
        if first < b:
            own = dict(zip(own_storages(blocks, first), own_storages(blocks, b), strict=True))
            options.append([replace(o, saved=frozenset(own[s] for s in o.saved)) for o in options[first]])
        else:
            options.append(span_options(blocks, (b, b + 1), prices, blocks.onward(b)))
        if best.left() < until or len(options[-1]) < len(prices):
            return None
    charge(STEP * len(prices) ** 2 / 2 * sum(len(blocks.positions((b, b + 1))) for b in set(like)))
    return Passes(blocks, options, like)


def from_beam(best: Incumbent, widths: Sequence[int]) -> None:
    """Ways through the program that hold what fits, the narrow beams first; they get through where anything does."""
    for width in widths:
        if best.closed or best.left() < 0.5 * best.whole:
            return
        most = BEAM if best.order is None else BEAM / 4
        order = Beam(best.facts, best.budget, best.seed, until=(1 - most) * best.left()).search(width)
        if order is None:
            return
        best.offer(order, f"a beam of {width}")


def from_regrowth(best: Incumbent, share: float, *, anew: bool = False) -> None:
    """Ruin and recreate for a share of all the work: from the best order or anew, towards a first one where none is."""
    from lowtide.planning.optimal.regrow.regrowth import Regrowth  # compiled code is loaded only where it is used

    seconds = min(share * best.whole, best.left())
    if best.closed or seconds <= 0:
        return
    plain = best.plain()
    regrowth = Regrowth(plain.facts, best.budget)
    if best.order is None or best.is_long:
        _first_fit(best, regrowth, plain, seconds)
        return
    tastes = ANEW if anew else ONWARD
    start = plain.facts.problem.program if anew else plain.stripped(best.order)
    grown = regrowth.grow(start, tastes[best.walks % len(tastes)], seconds=seconds, seed=best.seed + WALKS * best.walks)
    best.walks += 1
    if grown.best is not None:
        best.offer(plain.back(grown.best), "ruin and recreate, anew" if anew else "ruin and recreate")


def from_spine(best: Incumbent, top: int, share: float) -> None:
    """What the bound along the spine stores, repaired, then ruin and recreate from there for a share of all the work.

    Repaired it is mostly slower than the best order, but of another build: walks from there come to what they do not
    reach from the best.
    """
    from lowtide.planning.optimal.regrow.regrowth import Regrowth
    from lowtide.planning.optimal.spine.bound import spine_decisions

    plain = best.plain()
    facts = plain.facts
    built = (build(facts, d) for d in spine_decisions(facts, best.budget, top, PARTS, best.left))
    fitted = [order for order in (best.fitted(order, facts) for order in built if order) if order]
    seconds = min(share * best.whole, best.left())
    if not fitted or seconds <= 0:
        return
    start = min(fitted, key=lambda order: time_of(facts.problem, order))
    grown = Regrowth(facts, best.budget).grow(start, ONWARD[0], seconds=seconds, seed=best.seed)
    best.offer(plain.back(grown.best or start), "ruin and recreate, along the spine")


def _first_fit(best: Incumbent, regrowth: "Regrowth", plain: Plain, seconds: float) -> None:
    """Walks from the program and from the order with the least peak, in several tastes, until one of them fits."""
    for share, taste in FIRST:
        least = best.walks % REPEATED == REPEATED - 1 and len(best.floor_order) < LONG * best.facts.count
        start = plain.stripped(best.floor_order) if least else plain.facts.problem.program
        grown = regrowth.grow(start, taste, seconds=share * seconds, seed=best.seed + WALKS * best.walks)
        best.walks += 1
        if best.offer(plain.back(grown.best or grown.last), "ruin and recreate, for a first fit"):
            return


def _spans(count: int, lengths: Sequence[int]) -> Iterator[Span]:
    for length in lengths:
        for i in range(count - length + 1):
            yield i, i + length


def byte_price(best: Incumbent, instant: int) -> float:
    """What one byte less at an instant costs in time, by the linear relaxation."""
    room = best.budget - best.facts.problem.resident_bytes
    step = max(1, room // 50)
    here = Model(best.facts, best.budget, [instant]).relaxed(seconds=5.0)
    less = Model(best.facts, best.budget - step, [instant]).relaxed(seconds=5.0)
    scale = best.facts.problem.base_time / max(1, int(best.facts.live.max()) - best.facts.problem.resident_bytes)
    return (less - here) / step if less < float("inf") and less > here else scale
