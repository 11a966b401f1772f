"""The steps of an order of runs: places that open and close, runs of each op by key, edits noted and undone."""

from lowtide.planning.optimal.regrow.compiled import compiled
from lowtide.planning.optimal.regrow.tables import EDITED, MOVED, SPACE, Ints, Order


@compiled
def give_keys(order: Order) -> None:
    """Keys at even distances, so that runs can be put between any two steps again."""
    for k in range(order.counts.size):
        order.counts[k] = 0
    for step in range(order.length[0]):
        k = order.ops[step]
        order.keys[step] = (step + 1) * SPACE
        order.runs[k, order.counts[k]] = order.keys[step]
        order.counts[k] += 1


@compiled
def mark(order: Order) -> None:
    """What `undo` goes back to."""
    length = order.length[0]
    order.work[0] += 3 * MOVED * length
    copy(order.ops, order.old_ops, length)
    copy(order.keys, order.old_keys, length)
    copy(order.live, order.old_live, length)
    order.old_length[0] = length
    order.edits[0] = 0


@compiled
def undo(order: Order) -> None:
    """The order as it was marked."""
    length = order.old_length[0]
    copy(order.old_ops, order.ops, length)
    copy(order.old_keys, order.keys, length)
    copy(order.old_live, order.live, length)
    order.length[0] = length
    for i in range(order.edits[0] - 1, -1, -1):
        if order.edit_added[i]:
            forget(order, order.edit_ops[i], order.edit_keys[i])
        else:
            learn(order, order.edit_ops[i], order.edit_keys[i])
    order.edits[0] = 0


@compiled
def open_step(order: Order, step: int) -> None:
    """A place for one more step."""
    length = order.length[0]
    order.work[0] += 3 * MOVED * (length - step)
    for i in range(length, step, -1):
        order.ops[i] = order.ops[i - 1]
    for i in range(length, step, -1):
        order.keys[i] = order.keys[i - 1]
    for i in range(length, step, -1):
        order.live[i] = order.live[i - 1]
    order.length[0] = length + 1


@compiled
def close_step(order: Order, step: int) -> None:
    """The place of a step is given up."""
    length = order.length[0] - 1
    order.work[0] += 3 * MOVED * (length - step)
    for i in range(step, length):
        order.ops[i] = order.ops[i + 1]
    for i in range(step, length):
        order.keys[i] = order.keys[i + 1]
    for i in range(step, length):
        order.live[i] = order.live[i + 1]
    order.length[0] = length


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
    i = order.edits[0]
    order.edit_ops[i], order.edit_keys[i], order.edit_added[i] = k, key, added
    order.edits[0] = i + 1
    order.work[0] += EDITED


@compiled
def copy(source: Ints, target: Ints, length: int) -> None:
    """The first elements of an array."""
    for i in range(length):
        target[i] = source[i]
