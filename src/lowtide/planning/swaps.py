"""The swaps that a problem offers: for a storage, the ops that take it off the device and bring it back."""

from dataclasses import dataclass

from lowtide.planning.problem import COMPUTE, Problem


@dataclass(frozen=True, slots=True)
class Swap:
    """Three optional ops: `offload` and `prefetch` on a lane, `release` on compute, where the bytes become free."""

    storage: int
    offload: int
    release: int
    prefetch: int


def swaps_of(problem: Problem) -> dict[int, Swap]:
    """Storage -> how it can be swapped; empty where the problem offers no lane."""
    found: dict[int, Swap] = {}
    for o, op in enumerate(problem.ops):
        if not _copies(problem, o) or len(op.reads) != 1 or not problem.storages[op.writes[0]].off_device:
            continue
        storage, away = op.reads[0], op.writes[0]
        readers = problem.readers[away]
        back = [q for q in readers if _copies(problem, q) and problem.ops[q].writes == (storage,)]
        waits = [q for q in readers if _waits(problem, q) and set(problem.ops[q].reads) == {storage, away}]
        if back and waits:
            found.setdefault(storage, Swap(storage, o, waits[0], back[0]))
    return found


def _copies(problem: Problem, o: int) -> bool:
    op = problem.ops[o]
    return op.lane != COMPUTE and not op.once and len(op.writes) == 1


def _waits(problem: Problem, o: int) -> bool:
    op = problem.ops[o]
    return op.optional and op.lane == COMPUTE and not op.once and not op.writes and not op.workspace
