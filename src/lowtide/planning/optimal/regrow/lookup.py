"""Where things stand in an order of runs: steps by key, who reads a value when, between which runs a key lies."""

from lowtide.planning.optimal.compiled import compiled
from lowtide.planning.optimal.regrow.tables import LENGTH, MOVED, Order, Tables

NEVER = 1 << 60
"""A key behind every other."""
NONE = -1
"""A key before every other."""


@compiled
def step_of(order: Order, key: int) -> int:
    """The first step whose key is not less."""
    keys, low, high = order.keys, 0, order.state[LENGTH]
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def last_read(tables: Tables, order: Order, s: int, after: int, before: int) -> int:
    """Key of the last read of a storage between two keys; `after` where there is none."""
    found = after
    for at in range(tables.readers[s], tables.readers[s + 1]):
        reader = tables.readers[at]
        i = order.counts[reader] - 1
        while i >= 0 and order.runs[reader, i] >= before:
            i -= 1
        if i >= 0 and order.runs[reader, i] > found:
            found = order.runs[reader, i]
    return found


@compiled
def next_read(tables: Tables, order: Order, s: int, key: int) -> int:
    """Key of the first read of a storage at or after a key; NEVER where there is none."""
    found = NEVER
    for at in range(tables.readers[s], tables.readers[s + 1]):
        reader = tables.readers[at]
        i, count = 0, order.counts[reader]
        while i < count and order.runs[reader, i] < key:
            i += 1
        if i < count and order.runs[reader, i] < found:
            found = order.runs[reader, i]
    return found


@compiled
def runs_around(order: Order, k: int, key: int) -> tuple[int, int]:
    """Keys of the last run of an op before a key and of the one after that; NONE and NEVER where there is none."""
    count = order.counts[k]
    i = count - 1
    while i >= 0 and order.runs[k, i] >= key:
        i -= 1
    before = order.runs[k, i] if i >= 0 else NONE
    after = order.runs[k, i + 1] if i + 1 < count else NEVER
    return before, after


@compiled
def highest(order: Order, start: int) -> int:
    """The step with most bytes alive; of several the first from `start` on, around the end."""
    length, live = order.state[LENGTH], order.live
    order.work[0] += MOVED * length
    high = live[0]
    for step in range(length):
        high = max(high, live[step])
    for step in range(start, length):
        if live[step] == high:
            return step
    for step in range(start):
        if live[step] == high:
            return step
    return 0
