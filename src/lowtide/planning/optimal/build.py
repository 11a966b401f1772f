"""Where plans come from that no bound comes with: the program repaired, other policies, nested blocks."""

import math
from collections.abc import Sequence
from dataclasses import replace

from lowtide.planning.optimal.blocks import Blocks, find_narrow_blocks
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.nested import Nested
from lowtide.planning.optimal.options import Option, block_options
from lowtide.planning.optimal.passes import Passes
from lowtide.planning.optimal.repeats import Intervals, own_storages, repeats
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps
from lowtide.planning.policies import BudgetInfeasible, policy


def repaired_program(best: Incumbent) -> None:
    """The program order, made to fit."""
    best.offer(best.view.problem.program)


def from_policies(best: Incumbent) -> None:
    """What `chen` and `mutwo` find, so that the plan is never worse than theirs."""
    for name in ("chen", "mutwo"):
        try:
            charge_steps(SETTINGS.charges.policy * best.view.count)
            plan = policy(name).plan(best.view.problem, best.budget, time_limit=math.inf)
        except BudgetInfeasible:
            continue
        order = plan.schedule.ops
        best.offer(order, prune_it=len(order) < SETTINGS.long * best.view.count)


def from_blocks(best: Incumbent, most: int) -> None:
    """The dynamic program over nested blocks, for the room and for more, which repair takes back."""
    view = best.view
    blocks = find_narrow_blocks(view, most)
    if blocks is None:
        return
    percents = SETTINGS.room_percents[: None if best.is_medium else SETTINGS.room_percents_large]
    like = repeats(blocks)
    intervals = Intervals(like)
    until = best.left() * SETTINGS.nested_left
    before, whole = best.extra, max(percents)
    room = best.budget - view.problem.resident_bytes
    passes = _passes(best, blocks, like, [best.price * factor for factor in SETTINGS.byte_prices], until)
    if passes is None or best.left() < 2 * Nested.work(intervals, passes.option_count, whole):
        return
    affordable = SETTINGS.finer_share * best.left()
    parts = next((n for n in SETTINGS.finer if Nested.work(intervals, passes.option_count, n * whole) < affordable), 1)
    nested = Nested(blocks, passes, max(1, room * whole // 100), intervals, levels=parts * whole)
    for percent in percents:
        if percent != percents[0] and best.left() < until:
            break
        decision = nested.decision(parts * percent)
        if decision is not None:
            best.offer_decision(decision)
    best.is_chain = best.is_chain or best.extra < before


def _passes(
    best: Incumbent, blocks: Blocks, like: Sequence[int], prices: Sequence[float], until: float
) -> Passes | None:
    """The options of each block, worked out once for those that are the same; None where that takes too long."""
    options: list[list[Option]] = []
    for b, first in enumerate(like):
        if first < b:
            own = dict(zip(own_storages(blocks, first), own_storages(blocks, b), strict=True))
            options.append([replace(o, saved=frozenset(own[s] for s in o.saved)) for o in options[first]])
        else:
            options.append(block_options(blocks, b, prices))
        if best.left() < until or len(options[-1]) < len(prices):
            return None
    ops = sum(len(blocks.positions(b)) for b in set(like))
    charge_steps(SETTINGS.charges.passed * len(prices) ** 2 * ops)
    return Passes(blocks, options, like)
