"""A problem and an order of runs as arrays, for compiled code.

Ops are program positions, optional ones left out. Behind the last op stands one more that takes no time and reads what
must be kept: so what is kept is a value like any other, and can be dropped and made again at the end.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# numba takes what is fixed from the module
MOVED, EDITED, LOOKED = SETTINGS.walk_moved, SETTINGS.walk_edited, SETTINGS.walk_looked
SPACE = SETTINGS.key_space


class Tables(NamedTuple):
    """What never changes. Lists of different lengths lie in one array: list k is `reads[reads[k] : reads[k + 1]]`.

    Few arrays, since each is seven arguments of every compiled call, and compiling takes seconds as it is.
    """

    reads: Ints
    """Storages that an op reads, residents left out, each once."""
    writes: Ints
    touched: Ints
    """Storages that an op reads, then those that it writes."""
    readers: Ints
    """Ops that read a storage."""
    maker: Ints
    """The op that writes a storage, -1 for those that no op of the program writes."""
    sizes: Ints
    taken: Flags
    """Storages that some op can take over in place: when they end depends on who reads them last."""
    droppable: Ints
    """Storages with bytes and readers whose op may run again."""
    times: Floats
    workspaces: Ints
    reuses: Ints
    can_rerun: Flags


class Order(NamedTuple):
    """An order of runs. A step has a key; keys grow along the order and stay the same when others come and go."""

    ops: Ints
    keys: Ints
    live: Ints
    """Bytes alive at each step, residents left out."""
    runs: Ints
    """Per op the keys of its runs, rising."""
    counts: Ints
    """Per op how many these are."""
    edits: Ints
    """Runs that came or went since the order was last marked: op, key, and 1 where it came."""
    old: Ints
    """Ops, keys and live as they were marked."""
    state: Ints
    """At LENGTH the steps of the order, at MARKED those of the marked one, at EDITS how many edits were made since."""
    work: Floats
    """Seconds that what was done takes, by fitted constants."""


LENGTH, MARKED, EDITS = 0, 1, 2


class Scratch(NamedTuple):
    """Sets of ops that are being chosen."""

    chosen: Ints
    tried: Ints
    seen: Ints
    """Per op, and behind the last for nobody: the number of the set that it was last put into."""


def scratch_for(view: ProgramView, most: int) -> Scratch:
    """For sets of at most `most` ops."""
    return Scratch(_zeros(most), _zeros(most), _zeros(view.count + 1))


def tables_of(view: ProgramView) -> Tables:
    """The arrays of a problem."""
    problem = view.problem
    program, count = problem.program, len(problem.storages)
    reads = [sorted({s for s in problem.reads[o] if s in view.born}) for o in program]
    writes = [problem.writes[o] for o in program]
    reads.append(sorted(s for s in problem.kept if s in view.born))
    writes.append(())
    readers: list[list[int]] = [[] for _ in range(count)]
    for k, storages in enumerate(reads):
        for s in storages:
            readers[s].append(k)
    again = [*(not problem.ops[o].once for o in program), False]
    reuses = [*(problem.reuses[o] for o in program), -1]
    droppable = [s for s, k in sorted(view.born.items()) if problem.sizes[s] and again[k] and readers[s]]
    return Tables(
        reads=_flat(reads),
        writes=_flat(writes),
        touched=_flat([[*some, *others] for some, others in zip(reads, writes, strict=True)]),
        readers=_flat(readers),
        maker=_ints(view.born.get(s, -1) for s in range(count)),
        sizes=_ints(problem.sizes),
        taken=np.isin(np.arange(count), reuses),
        droppable=_ints(droppable),
        times=np.array([*(problem.times[o] for o in program), 0.0], dtype=np.float64),
        workspaces=_ints([*(problem.workspaces[o] for o in program), 0]),
        reuses=_ints(reuses),
        can_rerun=np.array(again, dtype=np.bool_),
    )


def order_of(view: ProgramView, order: Sequence[int], most: int) -> Order:
    """The arrays of an order, its optional runs left out, for drops that run `most` ops again.

    Keys, runs and bytes are filled in by compiled code.
    """
    ops = _ints([*(view.position[o] for o in order if view.position[o] >= 0), view.count])
    edits = SETTINGS.walk_edits + SETTINGS.walk_edits_each * most
    size = max(SETTINGS.walk_longest * view.count, len(ops) + view.count) + edits
    runs = int(np.bincount(ops).max())
    filled = _zeros(size)
    filled[: len(ops)] = ops
    return Order(
        ops=filled,
        keys=_zeros(size),
        live=_zeros(size),
        runs=np.zeros((view.count + 1, max(SETTINGS.walk_runs, 2 * runs)), dtype=np.int64),
        counts=_zeros(view.count + 1),
        edits=np.zeros((edits, 3), dtype=np.int64),
        old=np.zeros((3, size), dtype=np.int64),
        state=_ints([len(ops), 0, 0]),
        work=np.zeros(1, dtype=np.float64),
    )


def _flat(lists: Sequence[Sequence[int]]) -> Ints:
    """Where each list begins and the last ends, then the lists."""
    lengths = accumulate((len(some) for some in lists), initial=len(lists) + 1)
    return _ints([*lengths, *(value for some in lists for value in some)])


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _zeros(size: int) -> Ints:
    return np.zeros(size, dtype=np.int64)
