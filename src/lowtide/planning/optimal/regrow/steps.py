"""The steps of an order of runs: places that open and close, runs of each op by key, edits noted and undone."""

from lowtide.planning.optimal.compiled import compiled
from lowtide.planning.optimal.regrow.tables import EDITED, EDITS, LENGTH, MARKED, MOVED, SPACE, Ints, Order


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
    for i in range(length, step, -1):
        order.ops[i] = order.ops[i - 1]
    for i in range(length, step, -1):
        order.keys[i] = order.keys[i - 1]
    for i in range(length, step, -1):
        order.live[i] = order.live[i - 1]
    order.state[LENGTH] = length + 1


@compiled
def close_step(order: Order, step: int) -> None:
    """The place of a step is given up."""
    length = order.state[LENGTH] - 1
    order.work[0] += 3 * MOVED * (length - step)
    for i in range(step, length):
        order.ops[i] = order.ops[i + 1]
    for i in range(step, length):
        order.keys[i] = order.keys[i + 1]
    for i in range(step, length):
        order.live[i] = order.live[i + 1]
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
