"""`mutwo`: the paper's greedy decides, our exact simulator judges.

The paper's simulator ignores what recomputation itself takes. Where the exact peak is still over the budget once the
paper's is within it, the greedy goes on with a tighter limit of its own.
"""

import time
from collections.abc import Iterable

from lowtide.planning.policies import Plan, Progress, judged, over_budget, quiet
from lowtide.planning.policies.activations import phases
from lowtide.planning.policies.mutwo_greedy import Greedy, start
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import peak_of
from lowtide.planning.swap_places import with_releases


def plan(
    problem: Problem,
    budget: int,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    progress: Progress = quiet,
    split: int | None = None,
) -> Plan:
    """The first of the greedy's orders that fits."""
    began = time.perf_counter()
    greedy = start(phases(problem, split))
    order: tuple[int, ...] = problem.program
    peak = peak_of(problem, order)
    floor, lowest = peak, order
    limit, more = budget, True
    while peak > budget:
        if not more or time.perf_counter() - began > time_limit:
            raise over_budget(problem, lowest, budget)
        more = greedy.advance(limit)
        order = rewritten(greedy, budget)
        peak = peak_of(problem, order)
        if peak < floor:
            floor, lowest = peak, order
        progress(f"{len(greedy.recomputed)} recomputed, {len(greedy.swapped)} swapped")
        limit = min(limit, greedy.peak) - max(1, (peak - budget) // 4)
    note = (
        f"{len(greedy.recomputed)} recomputed, {len(greedy.swapped)} swapped; "
        f"the paper's own simulator says {greedy.peak} bytes"
    )
    return judged(problem, order, budget, policy="mutwo", seconds=time.perf_counter() - began, note=note)


def rewritten(greedy: Greedy, budget: int) -> tuple[int, ...]:
    """The program with the greedy's choices in it: each recomputation before its first backward reader.

    A swapped value goes out after its last forward use, and its bytes are waited for where the budget needs them.
    """
    problem = greedy.phases.problem
    position = greedy.phases.position
    before: dict[int, set[int]] = {}
    for c in greedy.recomputed.values():
        before.setdefault(c.first_backward, set()).update(c.graph)
    prefetch: dict[int, list[int]] = {}
    offload: dict[int, list[int]] = {}
    for s, c in greedy.swapped.items():
        assert c.swap is not None
        offload.setdefault(c.last_forward, []).append(c.swap.offload)
        prefetch.setdefault(greedy.prompts[s].step, []).append(c.swap.prefetch)
    order: list[int] = []
    for step, o in enumerate(problem.program):
        order.extend(prefetch.get(step, ()))
        order.extend(_in_program_order(before.get(step, ()), position))
        order.append(o)
        order.extend(offload.get(step, ()))
    swaps = [c.swap for c in greedy.swapped.values() if c.swap is not None]
    return with_releases(problem, order, swaps, budget) if swaps else tuple(order)


def _in_program_order(ops: Iterable[int], position: dict[int, int]) -> list[int]:
    return sorted(ops, key=position.__getitem__)
