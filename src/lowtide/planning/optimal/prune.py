"""Leave out runs that the budget does not need: the values they make again are kept alive instead."""

import random
from collections.abc import Sequence

from lowtide.planning.optimal.lifetimes import Lifetimes
from lowtide.planning.optimal.program_view import ProgramView, extra_steps
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance, charge_steps


def prune(view: ProgramView, order: Sequence[int], budget: int, *, seed: int = 0) -> list[int]:
    """The fastest of a few greedy removals, the first of them by time and the others shuffled; never slower."""
    times = view.problem.times
    best, best_time = list(order), sum(times[o] for o in order)
    chance = random.Random(seed)
    for trial in range(SETTINGS.prune_rounds):
        weight = {
            o: times[o] * (1.0 if trial == 0 else chance.uniform(*SETTINGS.prune_shuffled)) for o in sorted(set(order))
        }
        found = _removed(view, order, budget, weight)
        time = sum(times[o] for o in found)
        if time < best_time or (time == best_time and len(found) < len(best)):
            best, best_time = found, time
    return best


def _removed(view: ProgramView, order: Sequence[int], budget: int, weight: dict[int, float]) -> list[int]:
    """Sweeps over the extra runs, until one removes nothing or they have taken their share of the work."""
    lifetimes = Lifetimes(view, order)
    extra = extra_steps(view, order)
    removable = set(extra)
    left = sorted(extra, key=lambda step: (-weight[order[step]], step))
    until = (1 - SETTINGS.prune_share) * allowance().left()
    run, look = SETTINGS.charges.removed
    while True:
        charge_steps((run + look * len(order)) * len(left))
        for step in left:
            if lifetimes.alive[step]:
                _take_out(lifetimes, step, budget, removable)
        kept = [step for step in left if lifetimes.alive[step]]
        if len(kept) == len(left) or allowance().left() < until:
            return lifetimes.remaining()
        left = kept


def _take_out(lifetimes: Lifetimes, step: int, budget: int, removable: set[int]) -> None:
    """Leave out a run where that fits, and at once the extra runs whose values nothing reads any more."""
    stack = [step]
    while stack:
        step = stack.pop()
        inputs = list(lifetimes.read[step])
        if _try(lifetimes, step, budget):
            stack.extend(
                maker
                for maker in {lifetimes.born[instance] for instance in inputs if not lifetimes.readers[instance]}
                if maker in removable and not any(lifetimes.readers[i] for i in lifetimes.written[maker])
            )


def _try(lifetimes: Lifetimes, step: int, budget: int) -> bool:
    changes = lifetimes.removal(step)
    if changes is None:
        return False
    growing = [(start, end, size) for start, end, size in changes if size > 0 and end > start]
    if growing:
        if len(growing) == 1 and len(changes) == 1:
            start, end, size = growing[0]
            if int(lifetimes.live[start:end].max()) + size > budget:
                return False
        else:
            low = min(start for start, _, _ in growing)
            window = lifetimes.live[low:step].copy()
            for start, end, size in changes:
                window[max(0, start - low) : max(0, end - low)] += size
            if int(window.max()) > budget:
                return False
    lifetimes.remove(step, changes)
    return True
