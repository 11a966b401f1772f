"""Tiny problems solved to the end: the cheapest way through all states of (ops done, storages held)."""

import heapq

from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance, charge
from lowtide.planning.problem import Problem

State = tuple[int, int, int]
"""Program ops done, storages held and optional once-ops used, the latter two as bit sets."""


def solve_exactly(problem: Problem, budget: int) -> tuple[tuple[int, ...] | None, bool]:
    """The fastest order within the budget, None where none fits or was reached; and whether that is certain.

    Dijkstra's algorithm on extra time, program ops being free. Tried where there are few ops.
    """
    program, ops, times = problem.program, problem.ops, problem.times
    if len(ops) > SETTINGS.exact_ops:
        return None, False
    movable = [s for s, storage in enumerate(problem.storages) if not storage.resident]
    bit = {s: 1 << i for i, s in enumerate(movable)}
    reads = [sum(bit[s] for s in problem.reads[o]) for o in range(len(ops))]
    writes = [sum(bit[s] for s in set(problem.writes[o])) for o in range(len(ops))]
    kept = sum(bit[s] for s in problem.kept)
    droppable = [bit[s] for s in movable if problem.sizes[s]]
    useful = sum(bit[s] for s in movable if problem.readers[s] or bit[s] & kept)
    place = {o: k for k, o in enumerate(program)}
    size_of: dict[int, int] = {0: problem.resident_bytes}

    def size(held: int) -> int:
        if held not in size_of:
            top = held.bit_length() - 1
            size_of[held] = size(held ^ 1 << top) + problem.sizes[movable[top]]
        return size_of[held]

    start: State = (0, 0, 0)
    best: dict[State, float] = {start: 0.0}
    came: dict[State, tuple[State, int]] = {}
    queue: list[tuple[float, int, State]] = [(0.0, 0, start)]
    settled: set[State] = set()

    def reach(state: State, cost: float, origin: State, op: int) -> None:
        if cost < best.get(state, float("inf")):
            best[state], came[state] = cost, (origin, op)
            heapq.heappush(queue, (cost, -state[0], state))

    most = min(SETTINGS.exact_states, max(0.0, allowance().left()) / SETTINGS.exact_state)
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state in settled:
            continue
        settled.add(state)
        charge(SETTINGS.exact_state)
        done, held, used = state
        if done == len(program) and held & kept == kept:
            return _path(came, state), True
        if len(settled) > most:
            return None, False
        for mine in droppable:
            if held & mine:
                reach((done, held ^ mine, used), cost, state, -1)
        for o, op in enumerate(ops):
            if reads[o] & ~held:
                continue
            k = place.get(o)
            for rest in (held,) if op.reuses is None else (held, held & ~bit[op.reuses]):
                if size(rest | writes[o]) + op.workspace > budget:
                    continue
                after = rest | writes[o] & useful
                if k == done:
                    reach((done + 1, after, used), cost, state, o)
                elif op.once and (k is not None or used >> o & 1):
                    continue
                elif k is None or k < done:
                    mark = used | 1 << o if op.once else used
                    reach((done, after, mark), cost + times[o], state, o)
    return None, True


def _path(came: dict[State, tuple[State, int]], state: State) -> tuple[int, ...]:
    order: list[int] = []
    while state in came:
        state, o = came[state]
        if o >= 0:
            order.append(o)
    return tuple(reversed(order))
