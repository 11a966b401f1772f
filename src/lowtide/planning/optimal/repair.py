"""Bring an order that is a little over the budget below it: values idle at the excess are dropped and made again."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.lifetimes import Lifetimes, excess


@dataclass(frozen=True)
class _Change:
    """Ops to run again before a step, and what that costs for what."""

    step: int
    ops: tuple[int, ...]
    price: float


def repair(facts: Facts, order: Sequence[int], budget: int, *, steps: int = 400) -> list[int] | None:
    """An order within the budget, or None where greedy dropping does not get there."""
    current = list(order)
    barred: set[tuple[int, int, int]] = set()
    for _ in range(steps):
        lifetimes = Lifetimes(facts, current)
        over = excess(lifetimes.live, budget)
        if over == 0:
            return current
        changes = _changes(lifetimes, budget)
        for change in sorted(changes, key=lambda c: (c.price, c.step, c.ops))[:4]:
            tried = current[: change.step] + list(change.ops) + current[change.step :]
            key = (change.step, len(current), hash(change.ops))
            if key in barred:
                continue
            if excess(Lifetimes(facts, tried).live, budget) < over:
                current = tried
                break
            barred.add(key)
        else:
            return None
    return None


def _changes(lifetimes: Lifetimes, budget: int) -> list[_Change]:
    """For each value idle at the worst step: run its op again before its next use, with what that lacks or without."""
    problem, live = lifetimes.facts.problem, lifetimes.live
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
            for depth in (0, 2, 8, 40):
                change = _evaluate(lifetimes, budget, o, after, depth)
                if change is not None:
                    found.append(change)
    return found


def _evaluate(lifetimes: Lifetimes, budget: int, op: int, step: int, depth: int) -> _Change | None:
    """The price (time per byte of excess taken away) of running `op` before `step`, `depth` missing ops with it."""
    problem, sizes = lifetimes.facts.problem, lifetimes.facts.problem.sizes
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
                changes.append((idle + 1, -sizes[s]))
                low = min(low, idle + 1)
    for instance in extended:
        start = lifetimes.last(instance) + 1
        changes.append((start, sizes[lifetimes.storage[instance]]))
        low = min(low, start)
    if low == step:
        return None
    view = live[low:step]
    after = view.copy()
    for start, size in changes:
        after[start - low :] += size
    gain = int(np.maximum(view - budget, 0).sum() - np.maximum(after - budget, 0).sum())
    if gain <= 0:
        return None
    position = lifetimes.facts.position
    ops = tuple(sorted(set(chosen), key=lambda q: position[q]))
    if op != ops[-1]:
        ops = (*(q for q in ops if q != op), op)
    return _Change(step, ops, (sum(problem.times[q] for q in ops) + 1e-9) / gain)


def _newest(lifetimes: Lifetimes, s: int, step: int) -> int:
    """The newest instance of a storage before a step, -1 where there is none."""
    found = -1
    for instance in lifetimes.instances_of(s):
        if lifetimes.born[instance] >= step:
            break
        found = instance
    return found
