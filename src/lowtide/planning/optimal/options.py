"""Options of a block: what it stores on the way out, what it runs again on return, what that takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.eliminate import TooWide
from lowtide.planning.optimal.keep_or_rerun import KeepOrRerun
from lowtide.planning.optimal.lifetimes import part_peak
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps


@dataclass(frozen=True)
class Option:
    """`stored` bytes while the blocks behind are worked on, `time` to run again on return."""

    saved: frozenset[int]
    stored: int
    time: float
    back: int
    """Peak of its own values, and of what the program writes meanwhile, on return."""


def block_options(blocks: Blocks, b: int, prices: Sequence[float]) -> list[Option]:
    """The best saved sets of a block at each price of a byte; none where too many ops meet at one value.

    What the block passes on is there on return.
    """
    problem, onward = blocks.view.problem, blocks.onward(b)
    needed = [s for s in blocks.needed[b] if s not in onward]
    ops = [problem.program[k] for k in blocks.positions(b)]
    try:
        saving = KeepOrRerun(problem, ops, needed, blocks.entry[b], onward, blocks.view.pairs)
    except TooWide:
        return []
    known: dict[frozenset[int], Option] = {}
    found: list[Option] = []
    for price in prices:
        saved, time = saving.at(price)
        if saved not in known:
            charge_steps(SETTINGS.charges.option * len(ops))
            stored = sum(problem.sizes[s] for s in saved)
            known[saved] = Option(saved, stored, time, _back_peak(blocks, b, saved))
        found.append(known[saved])
    return found


def outward_peak(blocks: Blocks, b: int, saved: frozenset[int]) -> int:
    """Peak of a block's own values while it runs forward and keeps `saved`."""
    order = [blocks.view.problem.program[k] for k in blocks.positions(b)]
    return part_peak(blocks.view.problem, order, _inside(blocks, b), stay=saved | blocks.onward(b))


def _inside(blocks: Blocks, b: int) -> set[int]:
    problem = blocks.view.problem
    return {s for k in blocks.positions(b) for s in problem.writes[problem.program[k]]}


def _back_peak(blocks: Blocks, b: int, saved: frozenset[int]) -> int:
    """Peak on return: the block's values made again on demand beside what the program writes meanwhile."""
    view, problem = blocks.view, blocks.view.problem
    start = blocks.returns[b]
    end = blocks.returns[b - 1] if b else view.count
    inside = _inside(blocks, b)
    there = saved | (blocks.onward(b) & inside)
    have = set(there)
    order: list[int] = []
    at: list[int] = []

    def run(o: int, k: int, depth: int) -> None:
        for s in problem.reads[o]:
            if s in inside and s not in have and depth < SETTINGS.again_depth:
                makers = [q for q in problem.producers[s] if not problem.ops[q].once]
                ready = [q for q in makers if problem.ops[q].optional and have.issuperset(problem.reads[q])]
                if makers:
                    run((ready or makers)[0], k, depth + 1)
        order.append(o)
        at.append(k)
        have.update(s for s in problem.writes[o] if s in inside)

    for k in range(start, min(view.count, max(start + 1, end))):
        run(problem.program[k], k, 0)
    stay = {s for s in inside | saved if view.last.get(s, -1) >= end}
    return part_peak(problem, order, inside, there=there, stay=stay, beside=blocks.behind[at])
