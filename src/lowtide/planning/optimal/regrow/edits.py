"""An order of runs, edited by one run at a time: its bytes follow, and all edits since a mark can be undone.

A run that is put in or taken out changes the lives of what its op reads and writes only. Storages that some op takes
over in place are the exception, since who reads them last decides whether they count there: all that they contribute
is taken away before an edit of an op that touches them and added again after it.
"""

from lowtide.planning.optimal.regrow.compiled import compiled
from lowtide.planning.optimal.regrow.lookup import NEVER, last_needed, last_read, runs_around, step_of
from lowtide.planning.optimal.regrow.steps import close_step, forget, give_keys, learn, note, open_step
from lowtide.planning.optimal.regrow.tables import Order, Tables


@compiled
def begin(tables: Tables, order: Order) -> float:
    """Fill in keys, runs and bytes from the ops alone; the extra time of the order."""
    give_keys(order)
    extra = 0.0
    for k in range(tables.times.size):
        extra += tables.times[k] * (order.counts[k] - 1)
    for step in range(order.length[0]):
        order.live[step] = tables.workspaces[order.ops[step]]
    for s in range(tables.sizes.size):
        contribute(tables, order, s, 1)
    return extra


@compiled
def insert(tables: Tables, order: Order, step: int, k: int) -> bool:
    """Run an op before a step, which is not the first; False, and nothing done, where the arrays have no room."""
    keys, length = order.keys, order.length[0]
    key = (keys[step - 1] + keys[step]) >> 1
    full = order.counts[k] >= order.runs.shape[1] or length + 1 >= keys.size or order.edits[0] >= order.edit_keys.size
    if full or key == keys[step - 1]:
        return False
    _taken_over(tables, order, k, -1)
    crossing = _crossing(tables, order, step, k)
    open_step(order, step)
    order.ops[step], keys[step], order.live[step] = k, key, crossing + tables.workspaces[k]
    _reading(tables, order, step, 1)
    for at in range(tables.writes_at[k], tables.writes_at[k + 1]):
        s = tables.writes[at]
        if tables.taken[s]:
            continue
        made, remade = runs_around(order, k, key)
        if last_needed(tables, order, s, made, remade) < key:
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
    if order.edits[0] >= order.edit_keys.size:
        return False
    k, key = order.ops[step], order.keys[step]
    _taken_over(tables, order, k, -1)
    forget(order, k, key)
    _reading(tables, order, step, -1)
    for at in range(tables.writes_at[k], tables.writes_at[k + 1]):
        s = tables.writes[at]
        if tables.taken[s]:
            continue
        made, remade = runs_around(order, k, key)
        if last_needed(tables, order, s, made, remade) > key:  # then what was made before must live on
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
        needed = last_needed(tables, order, s, made, remade)
        end = order.length[0]
        if needed < NEVER:
            end = step_of(order, needed)
            if needed == made or tables.reuses[order.ops[end]] != s:
                end += 1
        _add(order, step_of(order, made), end, size)


@compiled
def _taken_over(tables: Tables, order: Order, k: int, sign: int) -> None:
    """Contributions of the storages that an op touches and that some op can take over."""
    for at in range(tables.reads_at[k], tables.reads_at[k + 1]):
        if tables.taken[tables.reads[at]]:
            contribute(tables, order, tables.reads[at], sign)
    for at in range(tables.writes_at[k], tables.writes_at[k + 1]):
        if tables.taken[tables.writes[at]]:
            contribute(tables, order, tables.writes[at], sign)


@compiled
def _touches(tables: Tables, k: int, s: int) -> bool:
    for at in range(tables.reads_at[k], tables.reads_at[k + 1]):
        if tables.reads[at] == s:
            return True
    for at in range(tables.writes_at[k], tables.writes_at[k + 1]):
        if tables.writes[at] == s:
            return True
    return False


@compiled
def _crossing(tables: Tables, order: Order, step: int, k: int) -> int:
    """Bytes that live from before a step into it, without what `_taken_over` has taken away for an edit of `k`."""
    here, key = order.ops[step], order.keys[step]
    crossing = order.live[step] - tables.workspaces[here]
    for at in range(tables.writes_at[here], tables.writes_at[here + 1]):
        s = tables.writes[at]
        if not (tables.taken[s] and _touches(tables, k, s)):
            crossing -= tables.sizes[s]
    s = tables.reuses[here]
    if s >= 0 and not _touches(tables, k, s):
        made, remade = runs_around(order, tables.maker[s], key)
        if last_needed(tables, order, s, made, remade) == key:
            crossing += tables.sizes[s]
    return int(crossing)


@compiled
def _reading(tables: Tables, order: Order, step: int, sign: int) -> None:
    """What a run reads lives up to its step, as far as nothing behind the step needs it anyway."""
    k, key = order.ops[step], order.keys[step]
    for at in range(tables.reads_at[k], tables.reads_at[k + 1]):
        s = tables.reads[at]
        if tables.taken[s]:
            continue
        made, remade = runs_around(order, tables.maker[s], key)
        needed = last_needed(tables, order, s, made, remade)
        if needed < key:
            _add(order, step_of(order, needed) + 1, step + 1, sign * tables.sizes[s])


@compiled
def _add(order: Order, start: int, end: int, size: int) -> None:
    live = order.live[start:end]
    for i in range(live.size):
        live[i] += size
