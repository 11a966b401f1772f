"""What swapping costs in mu-TWO (Algorithm C): where the prefetch is prompted, and how long backward must wait."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """The backward step before which a prefetch starts, and the time that its reader still waits."""

    step: int
    stall: float


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
