"""An order of runs, edited by one run at a time: its bytes follow, and all edits since a mark can be undone.

A run that is put in or taken out changes the lives of what its op reads and writes only. Storages that some op takes
over in place are the exception, since who reads them last decides whether they count there: all that they contribute
is taken away before an edit of an op that touches them and added again after it.
"""

from lowtide.planning.optimal.compiled import compiled
from lowtide.planning.optimal.regrow.steps import (
    NEVER,
    close_step,
    forget,
    give_keys,
    is_full,
    last_read,
    learn,
    note,
    open_step,
    runs_around,
    step_of,
)
from lowtide.planning.optimal.regrow.tables import LENGTH, MOVED, Order, Tables


@compiled
def begin(tables: Tables, order: Order) -> float:
    """Fill in keys, runs and bytes from the ops alone; the extra time of the order."""
    give_keys(order)
    extra = 0.0
    for k in range(tables.times.size):
        extra += tables.times[k] * (order.counts[k] - 1)
    for step in range(order.state[LENGTH]):
        order.live[step] = tables.workspaces[order.ops[step]]
    for s in range(tables.sizes.size):
        contribute(tables, order, s, 1)
    return extra


@compiled
def insert(tables: Tables, order: Order, step: int, k: int) -> bool:
    """Run an op before a step, which is not the first; False, and nothing done, where the arrays have no room."""
    keys, length = order.keys, order.state[LENGTH]
    key = (keys[step - 1] + keys[step]) >> 1
    if key == keys[step - 1] or length + 1 >= keys.size or order.counts[k] >= order.runs.shape[1] or is_full(order):
        return False
    _taken_over(tables, order, k, -1)
    crossing = _crossing(tables, order, step, k)
    open_step(order, step)
    order.ops[step], keys[step], order.live[step] = k, key, crossing + tables.workspaces[k]
    _reading(tables, order, step, 1)
    for at in range(tables.writes[k], tables.writes[k + 1]):
        s = tables.writes[at]
        if tables.taken[s]:
            continue
        made, remade = runs_around(order, k, key)
        if last_read(tables, order, s, made, remade) < key:
            order.live[step] += tables.sizes[s]
        else:  # what was made before is needed no longer than its last read before this run
            _add(order, step_of(order, last_read(tables, order, s, made, key)) + 1, step, -tables.sizes[s])
    learn(order, k, key)
    _taken_over(tables, order, k, 1)
    note(order, k, key, True)
    return True


@compiled
def remove(tables: Tables, order: Order, step: int) -> bool:
    """Take out a run that is not its op's first; False, and nothing done, where the list of edits is full."""
    if is_full(order):
        return False
    k, key = order.ops[step], order.keys[step]
    _taken_over(tables, order, k, -1)
    forget(order, k, key)
    _reading(tables, order, step, -1)
    for at in range(tables.writes[k], tables.writes[k + 1]):
        s = tables.writes[at]
        if tables.taken[s]:
            continue
        made, remade = runs_around(order, k, key)
        if last_read(tables, order, s, made, remade) > key:  # then what was made before must live on
            _add(order, step_of(order, last_read(tables, order, s, made, key)) + 1, step, tables.sizes[s])
    close_step(order, step)
    _taken_over(tables, order, k, 1)
    note(order, k, key, False)
    return True


@compiled
def contribute(tables: Tables, order: Order, s: int, sign: int) -> None:
    """Add the bytes of all instances of a storage where they are alive, or take them away."""
    maker, size = tables.maker[s], sign * tables.sizes[s]
    if size == 0 or maker < 0:
        return
    for i in range(order.counts[maker]):
        made = order.runs[maker, i]
        remade = order.runs[maker, i + 1] if i + 1 < order.counts[maker] else NEVER
        needed = last_read(tables, order, s, made, remade)
        end = step_of(order, needed)
        if needed == made or tables.reuses[order.ops[end]] != s:
            end += 1
        _add(order, step_of(order, made), end, size)


@compiled
def _taken_over(tables: Tables, order: Order, k: int, sign: int) -> None:
    """Contributions of the storages that an op touches and that some op can take over."""
    for at in range(tables.touched[k], tables.touched[k + 1]):
        if tables.taken[tables.touched[at]]:
            contribute(tables, order, tables.touched[at], sign)


@compiled
def _touches(tables: Tables, k: int, s: int) -> bool:
    found = False
    for at in range(tables.touched[k], tables.touched[k + 1]):
        found = found or tables.touched[at] == s
    return found


@compiled
def _crossing(tables: Tables, order: Order, step: int, k: int) -> int:
    """Bytes that live from before a step into it, without what `_taken_over` has taken away for an edit of `k`."""
    here, key = order.ops[step], order.keys[step]
    crossing = order.live[step] - tables.workspaces[here]
    for at in range(tables.writes[here], tables.writes[here + 1]):
        s = tables.writes[at]
        if not (tables.taken[s] and _touches(tables, k, s)):
            crossing -= tables.sizes[s]
    s = tables.reuses[here]
    if s >= 0 and not _touches(tables, k, s):
        made, remade = runs_around(order, tables.maker[s], key)
        if last_read(tables, order, s, made, remade) == key:
            crossing += tables.sizes[s]
    return int(crossing)


@compiled
def _reading(tables: Tables, order: Order, step: int, sign: int) -> None:
    """What a run reads lives up to its step, as far as nothing behind the step needs it anyway."""
    k, key = order.ops[step], order.keys[step]
    for at in range(tables.reads[k], tables.reads[k + 1]):
        s = tables.reads[at]
        if tables.taken[s]:
            continue
        made, remade = runs_around(order, tables.maker[s], key)
        needed = last_read(tables, order, s, made, remade)
        if needed < key:
            _add(order, step_of(order, needed) + 1, step + 1, sign * tables.sizes[s])


@compiled
def _add(order: Order, start: int, end: int, size: int) -> None:
    order.work[0] += MOVED * max(0, end - start)
    live = order.live[start:end]
    for i in range(live.size):
        live[i] += size
