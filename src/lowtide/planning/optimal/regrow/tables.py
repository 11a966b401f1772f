"""A problem and an order of runs as arrays, for compiled code. Ops are program positions here, optional ones left out."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.optimal.facts import Facts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SPACE = 1 << 32
"""Between the keys of neighbouring steps: thirty-two runs can be put between two of them before keys are given anew."""
LONGEST = 4
"""Longest order that is walked through, in lengths of the program, unless it begins longer."""
MOST_RUNS = 32
"""Most runs of one op, unless an order begins with more."""
MOST_EDITS = 256
"""Most runs put in or taken out in one move."""


MOVED = 1e-10
"""Seconds that moving or looking at one element of the order takes."""
EDITED = 1e-7
"""Seconds that an edit takes beyond what it moves."""
LOOKED = 1e-7
"""Seconds that looking at a value that could be dropped takes, per op that would run again."""


class Tables(NamedTuple):
    """What never changes. Lists of different lengths lie end to end: `reads[reads_at[k] : reads_at[k + 1]]`."""

    reads_at: Ints
    reads: Ints
    """Storages that an op reads, residents left out, each once."""
    writes_at: Ints
    writes: Ints
    readers_at: Ints
    readers: Ints
    """Ops that read a storage."""
    maker: Ints
    """The op that writes a storage, -1 for those that no op of the program writes."""
    sizes: Ints
    kept: Flags
    taken: Flags
    """Storages that some op can take over in place: when they end depends on who reads them last."""
    droppable: Ints
    """Storages with bytes and readers whose op may run again."""
    times: Floats
    workspaces: Ints
    reuses: Ints
    again: Flags


class Order(NamedTuple):
    """An order of runs. A step has a key; keys grow along the order and stay the same when others come and go."""

    ops: Ints
    keys: Ints
    live: Ints
    """Bytes alive at each step, residents left out."""
    length: Ints
    runs: Ints
    """Per op the keys of its runs, rising."""
    counts: Ints
    edit_keys: Ints
    edit_ops: Ints
    edit_added: Flags
    edits: Ints
    """How many runs came or went since the order was last marked; the three arrays before say which."""
    old_ops: Ints
    old_keys: Ints
    old_live: Ints
    old_length: Ints
    """The order as it was marked."""
    work: Floats
    """Seconds that what was done takes, by fitted constants."""


def tables_of(facts: Facts) -> Tables:
    """The arrays of a problem."""
    problem = facts.problem
    program, count = problem.program, len(problem.storages)
    reads = [sorted({s for s in problem.reads[o] if s in facts.born}) for o in program]
    readers: list[list[int]] = [[] for _ in range(count)]
    for k, storages in enumerate(reads):
        for s in storages:
            readers[s].append(k)
    again = [not problem.ops[o].once for o in program]
    reuses = [problem.reuses[o] for o in program]
    droppable = [s for s, k in sorted(facts.born.items()) if problem.sizes[s] and again[k] and readers[s]]
    reads_at, flat_reads = _flat(reads)
    writes_at, flat_writes = _flat([problem.writes[o] for o in program])
    readers_at, flat_readers = _flat(readers)
    return Tables(
        reads_at,
        flat_reads,
        writes_at,
        flat_writes,
        readers_at,
        flat_readers,
        maker=_ints(facts.born.get(s, -1) for s in range(count)),
        sizes=_ints(problem.sizes),
        kept=_flags(problem.kept, count),
        taken=_flags((s for s in reuses if s >= 0), count),
        droppable=_ints(droppable),
        times=np.array([problem.times[o] for o in program], dtype=np.float64),
        workspaces=_ints(problem.workspaces[o] for o in program),
        reuses=_ints(reuses),
        again=np.array(again, dtype=np.bool_),
    )


def order_of(facts: Facts, order: Sequence[int]) -> Order:
    """The arrays of an order, its optional runs left out. Keys, runs and bytes are filled in by compiled code."""
    ops = _ints(facts.position[o] for o in order if facts.position[o] >= 0)
    size = max(LONGEST * facts.count, len(ops) + facts.count) + MOST_EDITS
    most = int(np.bincount(ops).max())
    filled = _zeros(size)
    filled[: len(ops)] = ops
    return Order(
        ops=filled,
        keys=_zeros(size),
        live=_zeros(size),
        length=_ints([len(ops)]),
        runs=np.zeros((facts.count, max(MOST_RUNS, 2 * most)), dtype=np.int64),
        counts=_zeros(facts.count),
        edit_keys=_zeros(MOST_EDITS),
        edit_ops=_zeros(MOST_EDITS),
        edit_added=np.zeros(MOST_EDITS, dtype=np.bool_),
        edits=_zeros(1),
        old_ops=_zeros(size),
        old_keys=_zeros(size),
        old_live=_zeros(size),
        old_length=_zeros(1),
        work=np.zeros(1, dtype=np.float64),
    )


def _flat(lists: Iterable[Sequence[int]]) -> tuple[Ints, Ints]:
    at, flat = [0], []
    for some in lists:
        flat.extend(some)
        at.append(len(flat))
    return _ints(at), _ints(flat)


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _zeros(size: int) -> Ints:
    return np.zeros(size, dtype=np.int64)


def _flags(storages: Iterable[int], count: int) -> Flags:
    found = np.zeros(count, dtype=np.bool_)
    found[list(storages)] = True
    return found
