"""`chen`: square root of n segments over the chain of the forward pass, each recomputed when its backward starts.

After Chen, Xu, Zhang, Guestrin: "Training deep nets with sublinear memory cost" (2016). For comparison: it knows no
budget, so it either fits or does not.
"""

import math
import time
from collections.abc import Iterator
from itertools import accumulate, pairwise

from lowtide.planning.policies import Plan, Progress, judged, quiet
from lowtide.planning.policies.activations import Phases, phases
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import peak_of


def plan(
    problem: Problem,
    budget: int,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    progress: Progress = quiet,
    split: int | None = None,
) -> Plan:
    """The program order where it fits, else the segmented one."""
    start = time.perf_counter()
    progress("cutting the forward pass into segments")
    order, note = problem.program, "nothing to recompute"
    if peak_of(problem, order) > budget:
        found = phases(problem, split)
        cuts = segments(found)
        order = segmented(found, cuts)
        note = f"{len(cuts) + 1} segments"
    return judged(problem, order, budget, policy="chen", seconds=time.perf_counter() - start, note=note)


def segments(found: Phases) -> tuple[int, ...]:
    """The forward steps after which a segment ends, without the last.

    The chain's links are the narrow points of forward: steps where the bytes that later forward steps read are fewer
    than just before and no more than just after.
    """
    crossing = _crossing(found)
    narrow = [
        step
        for step in range(1, found.split)
        if crossing[step - 1] > crossing[step] <= crossing[step + 1] or crossing[step] == 0
    ]
    count = math.ceil(math.sqrt(len(narrow) + 1))
    return tuple(dict.fromkeys(narrow[(len(narrow) + 1) * k // count - 1] for k in range(1, count)))


def _crossing(found: Phases) -> list[int]:
    """Per forward step: bytes made by then that a later forward step reads."""
    problem = found.problem
    change = [0] * (found.split + 2)
    for s, o in found.maker.items():
        born, last = found.position[o], found.last_forward(s)
        if born <= found.split:
            change[born] += problem.sizes[s]
            change[last] -= problem.sizes[s]
    return list(accumulate(change))[: found.split + 1]


def segmented(found: Phases, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """The program with each segment run again just before the first backward step that reads what it dropped.

    What a segment hands to a later one is stored, and so is what only an op with an effect can make. The last segment
    is not dropped: its backward comes at once.
    """
    program = found.problem.program
    again: dict[int, set[int]] = {}
    for first, last in pairwise((-1, *cuts)):
        inside = range(first + 1, last + 1)
        dropped = [s for s in found.activations if _droppable(found, s, inside)]
        if dropped:
            start = min(found.first_backward(s) for s in dropped)
            again.setdefault(start, set()).update(_closure(found, dropped, inside))
    order: list[int] = []
    for step, o in enumerate(program):
        order.extend(program[k] for k in sorted(again.get(step, ())))
        order.append(o)
    return tuple(order)


def _droppable(found: Phases, s: int, inside: range) -> bool:
    maker = found.maker[s]
    return found.position[maker] in inside and found.last_forward(s) in inside and not found.problem.ops[maker].once


def _closure(found: Phases, wanted: list[int], inside: range) -> Iterator[int]:
    """The steps of the segment that must run again for `wanted`."""
    seen = set(wanted)
    stack = list(wanted)
    while stack:
        maker = found.maker[stack.pop()]
        yield found.position[maker]
        for s in found.problem.reads[maker]:
            if s not in seen and _droppable(found, s, inside):
                seen.add(s)
                stack.append(s)
