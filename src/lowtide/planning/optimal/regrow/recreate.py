"""Make an order fit again: at its worst step a value that lies idle is dropped, and made again before its next read."""

import numpy as np

from lowtide.planning.optimal.compiled import compiled
from lowtide.planning.optimal.regrow.edits import insert, remove
from lowtide.planning.optimal.regrow.steps import (
    NEVER,
    NONE,
    highest,
    last_read,
    next_read,
    runs_around,
    step_of,
)
from lowtide.planning.optimal.regrow.tables import EDITS, LENGTH, LOOKED, Ints, Order, Scratch, Tables
from lowtide.planning.optimal.settings import SETTINGS

FITS, STUCK, FULL = 0, 1, 2
"""How it ended: within the room; nothing more to drop, or enough tried; no place in the arrays."""

# numba takes what is fixed from the module
LASTING, BEHIND, NOISE = SETTINGS.living_on, SETTINGS.behind_read, SETTINGS.drop_noise
DRAWS, DRAWS_EACH, SMALLEST = SETTINGS.drop_draws, SETTINGS.drop_draws_each, SETTINGS.smallest


@compiled
def recreate(
    tables: Tables, order: Order, room: int, drops: int, pool: int, most: int, early: float, scratch: Scratch
) -> tuple[int, float]:
    """Drop values until the order fits; how it ended and the time added.

    Each drop is the cheapest of `pool` drawn ones that run at most `most` ops again; `early` is how often
    a value is made again earlier than right before its read.
    """
    added = 0.0
    for _ in range(drops):
        worst = highest(order, np.random.randint(order.state[LENGTH]))
        if order.live[worst] <= room:
            return FITS, added
        key = order.keys[worst]
        s, until, count = _choose(tables, order, key, order.live[worst] - room, pool, most, early, scratch)
        if s < 0:
            return STUCK, added
        before, _ = runs_around(order, tables.maker[s], key)
        for i in range(count):
            if not insert(tables, order, step_of(order, until), scratch.chosen[i]):
                return FULL, added
            added += tables.times[scratch.chosen[i]]
        if before != order.runs[tables.maker[s], 0] and is_unread(tables, order, tables.maker[s], before):
            freed = take_out(tables, order, step_of(order, before))
            if freed < 0:
                return FULL, added
            added -= freed
    worst = highest(order, 0)
    return FITS if order.live[worst] <= room else STUCK, added


@compiled
def _choose(
    tables: Tables, order: Order, key: int, excess: int, pool: int, most: int, early: float, scratch: Scratch
) -> tuple[int, int, int]:
    """The value to drop at a key, -1 for none, before which key it is made again, and by how many ops, in `chosen`."""
    best, place, count, price, found = -1, NONE, 0, np.inf, 0
    for _ in range(DRAWS + DRAWS_EACH * pool):
        s = tables.droppable[np.random.randint(tables.droppable.size)]
        order.work[0] += LOOKED * order.state[LENGTH] / order.counts.size
        made, remade = runs_around(order, tables.maker[s], key)
        until = next_read(tables, order, s, key)
        if made < 0 or until in (key, NEVER) or remade <= until:
            continue
        found += 1
        if np.random.random() < early:
            until = _earlier(tables, order, tables.maker[s], key, until)
        needed, time, gained = _needed(tables, order, s, key, until, LASTING * np.random.random(), most, scratch)
        if needed > 0:
            asked = (time + SMALLEST) / min(gained, excess) * (1.0 + NOISE * np.random.random())
            if asked < price:
                best, place, count, price = s, until, needed, asked
                _rising(scratch.tried, scratch.chosen, needed)
        if found >= pool:
            break
    return best, place, count


@compiled
def _earlier(tables: Tables, order: Order, k: int, key: int, until: int) -> int:
    """A key between two others: behind the last read of one of an op's inputs, which it lets go there, or any."""
    low, high = step_of(order, key) + 1, step_of(order, until)
    first, end = tables.reads[k], tables.reads[k + 1]
    step = low + np.random.randint(high - low + 1)
    if first < end and np.random.random() < BEHIND:
        s = tables.reads[np.random.randint(first, end)]
        made, _ = runs_around(order, tables.maker[s], until)
        step = max(low, step_of(order, last_read(tables, order, s, made, until)) + 1)
    return int(order.keys[step])


@compiled
def _needed(
    tables: Tables, order: Order, s: int, key: int, until: int, lasting: float, most: int, scratch: Scratch
) -> tuple[int, float, float]:
    """Ops to run again before `until` so that a storage need not lie idle at `key`: how many, their time, bytes gained.

    Inputs that are not there have to live on over the key, as long as they take no more than the share `lasting` of the
    storage's bytes, or are made again in turn. None where that takes more than `most`, or what cannot run again.
    """
    tried, seen = scratch.tried, scratch.seen
    tried[0] = tables.maker[s]
    seen[-1] += 1  # another set
    seen[tried[0]] = seen[-1]
    count, i, time, held = 1, 0, tables.times[tried[0]], 0.0
    while i < count:
        k = tried[i]
        i += 1
        order.work[0] += LOOKED * order.state[LENGTH] / order.counts.size
        for at in range(tables.reads[k], tables.reads[k + 1]):
            read = tables.reads[at]
            maker = tables.maker[read]
            if seen[maker] == seen[-1]:
                continue
            made, remade = runs_around(order, maker, until)
            if last_read(tables, order, read, made, remade) >= key:
                continue
            if held + tables.sizes[read] <= lasting * tables.sizes[s]:
                held += tables.sizes[read]
                continue
            if not tables.can_rerun[maker] or count >= most:
                return 0, 0.0, 0.0
            tried[count], seen[maker] = maker, seen[-1]
            count += 1
            time += tables.times[maker]
    return count, time, tables.sizes[s] - held


@compiled
def _rising(source: Ints, target: Ints, count: int) -> None:
    """Copy, in rising order: as the program runs them, so that each finds what it reads."""
    for i in range(count):
        j = i
        while j > 0 and target[j - 1] > source[i]:
            target[j] = target[j - 1]
            j -= 1
        target[j] = source[i]


@compiled
def is_unread(tables: Tables, order: Order, k: int, key: int) -> bool:
    """Does nobody want what the run at a key made?"""
    _, remade = runs_around(order, k, key + 1)
    for at in range(tables.writes[k], tables.writes[k + 1]):
        if last_read(tables, order, tables.writes[at], key, remade) > key:
            return False
    return True


@compiled
def take_out(tables: Tables, order: Order, step: int) -> float:
    """Take out a run and those that only served it; the time saved, negative where the list of edits is full."""
    saved, i, key = 0.0, order.state[EDITS], order.keys[step]
    while key >= 0:
        step = step_of(order, key)
        saved += tables.times[order.ops[step]]
        if not remove(tables, order, step):
            return -1.0
        key = NONE
        while key < 0 and i < order.state[EDITS]:
            key = _only_served(tables, order, order.edits[i, 0], order.edits[i, 1])
            i += key < 0
    return saved


@compiled
def _only_served(tables: Tables, order: Order, k: int, key: int) -> int:
    """Key of a run, not its op's first, that served a run that is gone and nobody else; NONE where there is none."""
    for at in range(tables.reads[k], tables.reads[k + 1]):
        maker = tables.maker[tables.reads[at]]
        made, _ = runs_around(order, maker, key)
        if made != order.runs[maker, 0] and is_unread(tables, order, maker, made):
            return made
    return NONE
