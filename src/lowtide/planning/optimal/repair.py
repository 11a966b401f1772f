"""Bring an order that is a little over the budget below it: values idle at the excess are dropped and made again."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.planning.optimal.lifetimes import Lifetimes, excess
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance, charge_steps


@dataclass(frozen=True)
class _Change:
    """Ops to run again before a step, what that costs for each byte of excess, and bytes it frees at the worst step."""

    step: int
    ops: tuple[int, ...]
    price: float
    freed: int


def repair(
    view: ProgramView, order: Sequence[int], budget: int, *, work: int = SETTINGS.repair_changes
) -> list[int] | None:
    """An order within the budget, or None where greedy dropping does not get there."""
    current = list(order)
    lifetimes = Lifetimes(view, current)
    over = excess(lifetimes.live, budget)
    until = (1 - SETTINGS.repair_share) * allowance().left()
    while over and work > 0 and allowance().left() >= until:
        changes = _changes(lifetimes, budget)
        work -= len(changes) + 1
        changes.sort(key=lambda c: (c.price, c.step, c.ops))
        for chosen in (
            _enough(changes, int(lifetimes.live.max()) - budget),
            *([c] for c in changes[: SETTINGS.repair_single]),
        ):
            tried = _inserted(current, chosen)
            after = Lifetimes(view, tried)
            left = excess(after.live, budget)
            if left < over:
                current, lifetimes, over = tried, after, left
                break
        else:
            return None
    return None if over else current


def _enough(changes: list[_Change], needed: int) -> list[_Change]:
    """The cheapest changes that together free what is needed at the worst step, none touching another's ops."""
    chosen: list[_Change] = []
    ops: set[int] = set()
    for change in changes:
        if needed <= 0:
            break
        if ops.isdisjoint(change.ops):
            chosen.append(change)
            ops.update(change.ops)
            needed -= change.freed
    return chosen


def _inserted(order: list[int], changes: list[_Change]) -> list[int]:
    """The order with the changes' ops before their steps."""
    found = list(order)
    for change in sorted(changes, key=lambda c: -c.step):
        found[change.step : change.step] = change.ops
    return found


def _changes(lifetimes: Lifetimes, budget: int) -> list[_Change]:
    """For each value idle at the worst step: run its op again before its next use, with what that lacks or without."""
    problem, live = lifetimes.view.problem, lifetimes.live
    worst = int(live.argmax())
    found: list[_Change] = []
    for instance, born in enumerate(lifetimes.born):
        if born >= worst:
            break
        readers = lifetimes.readers[instance]
        if not readers or readers[-1] <= worst or not problem.sizes[lifetimes.storage[instance]]:
            continue
        after = next(r for r in readers if r >= worst)
        if after == worst or after >= len(lifetimes.order):
            continue
        for o in problem.producers[lifetimes.storage[instance]]:
            if problem.ops[o].once:
                continue
            for depth in SETTINGS.repair_depths:
                change = _evaluate(lifetimes, budget, o, after, depth, worst)
                if change is not None:
                    found.append(change)
    return found


def _evaluate(lifetimes: Lifetimes, budget: int, op: int, step: int, depth: int, worst: int) -> _Change | None:
    """The price (time per byte of excess taken away) of running `op` before `step`, `depth` missing ops with it."""
    problem, sizes = lifetimes.view.problem, lifetimes.view.problem.sizes
    chosen, stack, made = [op], [op], set(problem.writes[op])
    extended: list[int] = []
    while stack:
        for s in problem.reads[stack.pop()]:
            instance = _newest(lifetimes, s, step)
            if instance < 0:
                return None
            if s in made or lifetimes.last(instance) >= step:
                continue
            makers = [q for q in problem.producers[s] if not problem.ops[q].once and not problem.ops[q].optional]
            if makers and len(chosen) <= depth:
                chosen.append(makers[0])
                stack.append(makers[0])
                made.update(problem.writes[makers[0]])
            else:
                extended.append(instance)
    live = lifetimes.live
    low = step
    changes: list[tuple[int, int]] = []
    for q in chosen:
        for s in problem.writes[q]:
            instance = _newest(lifetimes, s, step)
            if instance < 0:
                continue
            readers = lifetimes.readers[instance]
            if readers and readers[-1] >= step:
                idle = max((r for r in readers if r < step), default=lifetimes.born[instance])
                start = lifetimes.until(instance, idle) + 1
                changes.append((start, -sizes[s]))
                low = min(low, start)
    for instance in extended:
        start = lifetimes.until(instance, lifetimes.last(instance)) + 1
        changes.append((start, sizes[lifetimes.storage[instance]]))
        low = min(low, start)
    if low == step:
        return None
    window = live[low:step]
    change, run, looked = SETTINGS.charges.changed
    charge_steps(change + run * len(chosen) + looked * len(window))
    after = window.copy()
    for start, size in changes:
        after[start - low :] += size
    gain = int(np.maximum(window - budget, 0).sum() - np.maximum(after - budget, 0).sum())
    if gain <= 0:
        return None
    position = lifetimes.view.position
    ops = tuple(sorted(set(chosen), key=lambda q: position[q]))
    if op != ops[-1]:
        ops = (*(q for q in ops if q != op), op)
    freed = int(window[worst - low] - after[worst - low]) if worst >= low else 0
    return _Change(step, ops, (sum(problem.times[q] for q in ops) + SETTINGS.smallest) / gain, freed)


def _newest(lifetimes: Lifetimes, s: int, step: int) -> int:
    """The newest instance of a storage before a step, -1 where there is none."""
    known = lifetimes.instances_of(s)
    before = bisect_left(known, step, key=lifetimes.born.__getitem__)
    return known[before - 1] if before else -1
