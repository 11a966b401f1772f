"""The true optimum of tiny problems, by Dijkstra over (program ops done, storages held): for tests only.

A storage may be dropped at any time, which is what the order's own liveness amounts to: holding a value that nothing
reads any more is never needed, and a value that is read later must be held until then.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from lowtide.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least time (or peak) and an order that has it."""

    value: float
    order: tuple[int, ...]


def least_time(problem: Problem, budget: int) -> Optimum | None:
    """The fastest order whose peak is within `budget`; None where there is none."""
    return _search(problem, lambda value, o, live: value + problem.times[o] if live <= budget else None)


def least_peak(problem: Problem) -> Optimum:
    """The order with the smallest peak."""
    found = _search(problem, lambda value, _, live: max(value, live))
    assert found is not None
    return found


def _search(problem: Problem, cost: Callable[[float, int, int], float | None]) -> Optimum | None:
    """Cheapest way from nothing to everything run; `cost` gives the value after running an op, None where barred."""
    program, ops = problem.program, problem.ops
    reads = [sum(1 << s for s in r) for r in problem.reads]
    writes = [sum(1 << s for s in set(w)) for w in problem.writes]
    kept = sum(1 << s for s in problem.kept)
    bytes_of = {0: problem.resident_bytes}

    def held_bytes(held: int) -> int:
        if held not in bytes_of:
            low = held & -held
            bytes_of[held] = held_bytes(held ^ low) + problem.sizes[low.bit_length() - 1]
        return bytes_of[held]

    start = (0, 0, 0)  # program ops done, storages held, once-and-optional ops that ran
    best: dict[tuple[int, int, int], float] = {start: 0.0}
    came: dict[tuple[int, int, int], tuple[tuple[int, int, int], int | None]] = {}
    queue: list[tuple[float, tuple[int, int, int]]] = [(0.0, start)]
    done: set[tuple[int, int, int]] = set()
    while queue:
        value, state = heapq.heappop(queue)
        if state in done:
            continue
        done.add(state)
        k, held, used = state
        if k == len(program) and held & kept == kept:
            return Optimum(value, _walk(came, state))
        steps: list[tuple[float, tuple[int, int, int], int | None]] = []
        rest = held
        while rest:
            low = rest & -rest
            rest ^= low
            steps.append((value, (k, held ^ low, used), None))
        for o, op in enumerate(ops):
            nxt = k
            if not op.optional:
                if k < len(program) and program[k] == o:
                    nxt = k + 1
                elif op.once or (k < len(program) and o > program[k]):
                    continue
            elif op.once and used >> o & 1:
                continue
            if reads[o] & ~held:
                continue
            mark = used | (1 << o if op.optional and op.once else 0)
            for rest in {held, held if op.reuses is None else held & ~(1 << op.reuses)}:
                after = cost(value, o, held_bytes(rest | writes[o]) + op.workspace)
                if after is not None:
                    steps.append((after, (nxt, rest | writes[o], mark), o))
        for after, state_after, ran in steps:
            if after < best.get(state_after, float("inf")):
                best[state_after] = after
                came[state_after] = (state, ran)
                heapq.heappush(queue, (after, state_after))
    return None


def _walk(
    came: dict[tuple[int, int, int], tuple[tuple[int, int, int], int | None]], state: tuple[int, int, int]
) -> tuple[int, ...]:
    order: list[int] = []
    while state in came:
        state, o = came[state]
        if o is not None:
            order.append(o)
    return tuple(reversed(order))
