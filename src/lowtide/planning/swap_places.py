"""Where swaps stand in an order: bytes are released as late as the budget allows, and values return in good time.

Neither changes what is computed, and both leave compute the most time before it has to wait.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from lowtide.planning.lanes import clock
from lowtide.planning.problem import COMPUTE, Problem
from lowtide.planning.schedule import instances
from lowtide.planning.simulate import simulate
from lowtide.planning.swaps import Swap

EARLY = 1.5
"""A prefetch starts this many times its own time before it is needed, where bytes allow: copies are not always as fast
as measured."""


def placed(problem: Problem, order: Sequence[int], swaps: Sequence[Swap], budget: int) -> tuple[int, ...]:
    """`order` with the releases and prefetches of `swaps` where they serve best, without swaps that free nothing."""
    found = with_releases(problem, order, swaps, budget)
    there = set(found)
    return fetched_early(problem, found, [swap for swap in swaps if swap.release in there], budget)


def with_releases(problem: Problem, order: Sequence[int], swaps: Sequence[Swap], budget: int) -> tuple[int, ...]:
    """`order` with releases before the first steps that need the bytes; swaps that free nothing are dropped."""
    found = _released_late(problem, order, swaps, budget)
    there = set(found)
    dropped = {o for swap in swaps if swap.release not in there for o in (swap.offload, swap.prefetch)}
    return tuple(o for o in found if o not in dropped)


def _released_late(problem: Problem, order: Sequence[int], swaps: Sequence[Swap], budget: int) -> tuple[int, ...]:
    """The releases of `swaps` anew, the oldest offload first."""
    releases = {swap.release for swap in swaps}
    swap_of = {swap.offload: swap for swap in swaps}
    bare = [o for o in order if o not in releases]
    live, dies = _if_copies_took_no_time(problem, bare)
    waiting: list[tuple[int, Swap]] = []
    held = 0
    found: list[int] = []
    back = {swap.prefetch: swap for swap in swaps}
    for step, o in enumerate(bare):
        for entry in waiting:
            held += problem.sizes[entry[1].storage] if entry[0] + 1 == step else 0
        k = 0
        while live[step] + held > budget and k < len(waiting):
            dead, swap = waiting[k]
            if dead < step:
                found.append(swap.release)
                held -= problem.sizes[swap.storage]
                del waiting[k]
            else:
                k += 1
        if o in back:
            stays = [entry for entry in waiting if entry[1] is back[o]]
            held -= sum(problem.sizes[swap.storage] for dead, swap in stays if dead < step)
            waiting = [entry for entry in waiting if entry[1] is not back[o]]
        found.append(o)
        if o in swap_of:
            waiting.append((dies[step], swap_of[o]))
    return tuple(found)


def _if_copies_took_no_time(problem: Problem, order: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """Bytes at each step if copies were over as soon as they start; per copy's step, its source's last step."""
    lived = instances(problem, order, copying=False)
    change = [0] * (len(order) + 2)
    change[0] = problem.resident_bytes
    there: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    for k, (s, born, last) in enumerate(zip(lived.storage, lived.born, lived.last, strict=True)):
        change[born] += problem.sizes[s]
        change[last + 1] -= problem.sizes[s]
        there[s, born] = k
    dies: dict[int, int] = {}
    for step, o in enumerate(order):
        if problem.ops[o].lane != COMPUTE:
            for s in problem.reads[o]:
                dies[step] = lived.last[newest[s]]
        for s in problem.writes[o]:
            newest[s] = there[s, step]
    live = [size + problem.workspaces[o] for size, o in zip(accumulate(change), order, strict=False)]
    return live, dies


def fetched_early(problem: Problem, order: Sequence[int], swaps: Sequence[Swap], budget: int) -> tuple[int, ...]:
    """Prefetches move forward until they are over in good time, as far as the bytes and the prefetch before allow."""
    back = {swap.prefetch: problem.sizes[swap.storage] for swap in swaps}
    return started_early(problem, order, back, budget, {swap.prefetch: swap.release for swap in swaps})


def started_early(
    problem: Problem,
    order: Sequence[int],
    sizes: Mapping[int, int],
    budget: int,
    behind: Mapping[int, int] | None = None,
) -> tuple[int, ...]:
    """Ops of other lanes, each of which takes the bytes that `sizes` says, move forward until they are over in good
    time, as far as the bytes, the one before, and the op that each must stay `behind` allow."""
    current = list(order)
    ran = clock(problem, current)
    starts, live = list(ran.starts), list(simulate(problem, current).live)
    steps = [step for step, o in enumerate(current) if o in sizes]
    latest = ran.time
    wanted: dict[int, float] = {}
    for step in reversed(steps):
        o = current[step]
        made = set(problem.writes[o])
        need = next(
            (k for k in range(step + 1, len(current)) if not made.isdisjoint(problem.reads[current[k]])),
            len(current) - 1,
        )
        latest = min(latest, starts[need] - ran.waits[need]) - problem.times[o]
        wanted[step] = latest - (EARLY - 1) * problem.times[o]
    bound = 0
    for step in steps:
        o = current[step]
        made, stays = set(problem.writes[o]), None if behind is None else behind[o]
        size, to = sizes[o], step
        floor = next(
            (k for k in range(step, bound, -1) if current[k - 1] == stays or made & set(problem.reads[current[k - 1]])),
            bound,
        )
        while to > floor and starts[to] > wanted[step] and live[to - 1] + size <= budget:
            to -= 1
        if to < step:
            current.insert(to, current.pop(step))
            starts.insert(to, starts[to])
            del starts[step + 1], live[step]
            live[to:step] = [size + bytes_ for bytes_ in live[to:step]]
            live.insert(to, live[to])
        bound = to + 1
    return tuple(current)
