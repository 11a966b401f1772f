"""What swapping costs in mu-TWO (Algorithm C): where the prefetch is prompted, and how long backward must wait."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planning.problem import COMPUTE, Problem


@dataclass(frozen=True, slots=True)
class Swap:
    """The ops that take a storage off the device and bring it back, on a lane beside compute."""

    offload: int
    prefetch: int
    time: float
    """Of the way back, which backward may have to wait for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The backward step before which a prefetch starts, and the time that its reader still waits."""

    step: int
    stall: float


def swaps(problem: Problem) -> dict[int, Swap]:
    """Storage -> how it can be swapped; empty where the problem carries no copy lane."""
    found: dict[int, Swap] = {}
    back = {op.reads[0]: o for o, op in enumerate(problem.ops) if _copies(problem, o) and len(op.reads) == 1}
    for o, op in enumerate(problem.ops):
        if not _copies(problem, o) or len(op.reads) != 1 or not problem.storages[op.writes[0]].off_device:
            continue
        fetch = back.get(op.writes[0])
        if fetch is not None and problem.ops[fetch].writes == op.reads:
            found.setdefault(op.reads[0], Swap(o, fetch, problem.times[fetch]))
    return found


def _copies(problem: Problem, o: int) -> bool:
    op = problem.ops[o]
    return op.optional and op.lane != COMPUTE and len(op.writes) == 1


def prompt(
    swap_time: float, access: int, split: int, times: Sequence[float], extra: Sequence[float], over: Sequence[bool]
) -> Prompt:
    """Walk back from `access` until the steps passed cover `swap_time`.

    `times` are the steps' own, `extra` the recomputation standing before each of them; the walk ends where backward
    begins and at a step that is `over` the limit, where nothing can come in: what is left is stall.
    """
    left, step = swap_time, access
    while left > 0:
        if step - 1 <= split or over[step - 1]:
            return Prompt(step, left)
        step -= 1
        left -= times[step] + extra[step]
    return Prompt(step, 0.0)
