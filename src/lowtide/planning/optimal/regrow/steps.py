"""The steps of an order of runs: steps by key, who reads a value when; places that open and close, edits undone."""

from lowtide.planning.optimal.compiled import compiled
from lowtide.planning.optimal.regrow.tables import EDITED, EDITS, LENGTH, MARKED, MOVED, SPACE, Ints, Order, Tables

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


@compiled
def give_keys(order: Order) -> None:
    """Keys at even distances, so that runs can be put between any two steps again."""
    for k in range(order.counts.size):
        order.counts[k] = 0
    for step in range(order.state[LENGTH]):
        k = order.ops[step]
        order.keys[step] = (step + 1) * SPACE
        order.runs[k, order.counts[k]] = order.keys[step]
        order.counts[k] += 1


@compiled
def mark(order: Order) -> None:
    """What `undo` goes back to."""
    length = order.state[LENGTH]
    order.work[0] += 3 * MOVED * length
    copy(order.ops, order.old[0], length)
    copy(order.keys, order.old[1], length)
    copy(order.live, order.old[2], length)
    order.state[MARKED] = length
    order.state[EDITS] = 0


@compiled
def undo(order: Order) -> None:
    """The order as it was marked."""
    length = order.state[MARKED]
    copy(order.old[0], order.ops, length)
    copy(order.old[1], order.keys, length)
    copy(order.old[2], order.live, length)
    order.state[LENGTH] = length
    for i in range(order.state[EDITS] - 1, -1, -1):
        if order.edits[i, 2]:
            forget(order, order.edits[i, 0], order.edits[i, 1])
        else:
            learn(order, order.edits[i, 0], order.edits[i, 1])
    order.state[EDITS] = 0


@compiled
def open_step(order: Order, step: int) -> None:
    """A place for one more step."""
    length = order.state[LENGTH]
    order.work[0] += 3 * MOVED * (length - step)
    for values in (order.ops, order.keys, order.live):
        for i in range(length, step, -1):
            values[i] = values[i - 1]
    order.state[LENGTH] = length + 1


@compiled
def close_step(order: Order, step: int) -> None:
    """The place of a step is given up."""
    length = order.state[LENGTH] - 1
    order.work[0] += 3 * MOVED * (length - step)
    for values in (order.ops, order.keys, order.live):
        for i in range(step, length):
            values[i] = values[i + 1]
    order.state[LENGTH] = length


@compiled
def learn(order: Order, k: int, key: int) -> None:
    i = order.counts[k]
    while i > 0 and order.runs[k, i - 1] > key:
        order.runs[k, i] = order.runs[k, i - 1]
        i -= 1
    order.runs[k, i] = key
    order.counts[k] += 1


@compiled
def forget(order: Order, k: int, key: int) -> None:
    i = 0
    while order.runs[k, i] != key:
        i += 1
    order.counts[k] -= 1
    for j in range(i, order.counts[k]):
        order.runs[k, j] = order.runs[k, j + 1]


@compiled
def note(order: Order, k: int, key: int, added: bool) -> None:
    i = order.state[EDITS]
    order.edits[i, 0], order.edits[i, 1], order.edits[i, 2] = k, key, added
    order.state[EDITS] = i + 1
    order.work[0] += EDITED


@compiled
def copy(source: Ints, target: Ints, length: int) -> None:
    """The first elements of an array."""
    for i in range(length):
        target[i] = source[i]


@compiled
def is_full(order: Order) -> bool:
    """Is the list of edits full?"""
    return bool(order.state[EDITS] >= order.edits.shape[0])
