"""What copies take from compute even where nothing waits for them: processor time, memory bandwidth, fresh pages."""

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from lowtide.device.clock import Clock, clock_for
from lowtide.device.swap.space import SwapSpace

_VALUE = 2**22
"""Bytes of each value that is copied: as activations are."""
_VALUES = 8
_ROUNDS = 5
_MIB = 2**20


def measure_drag(space: SwapSpace) -> float:
    """Milliseconds that compute loses for every MiB that goes out and comes back; medians of rounds in turn.

    Compute is matrix products and passes over memory, on all threads, as long as the copies are under way.
    """
    space.reserve(_VALUE * _VALUES)
    work = _work(space.device)
    work()
    clock = clock_for(space.device)
    rounds = [(_timed(work, clock), *_copying(space, work, clock)) for _ in range(_ROUNDS)]
    space.reset_waited()
    alone, out, back = (median(each) for each in zip(*rounds, strict=True))
    lost = max(0.0, out - alone) + max(0.0, back - alone)
    return float(lost / (_VALUE * _VALUES / _MIB))


def _copying(space: SwapSpace, work: Callable[[], None], clock: Clock) -> tuple[float, float]:
    """Milliseconds of `work` while values go out, and while they come back; no name of them outlives this."""
    values = [torch.ones(_VALUE // 4, device=space.device) for _ in range(_VALUES)]
    parked = [space.offload(value) for value in values]
    out = _timed(work, clock)
    for each in parked:
        space.settle(each)
    values = [space.prefetch(each) for each in parked]
    back = _timed(work, clock)
    for value in values:
        space.arrive(value)
    return out, back


def _work(device: torch.device) -> Callable[[], None]:
    """Some tens of milliseconds of compute, without random numbers, which are the user's."""
    left, wide = torch.full((768, 768), 0.01, device=device), torch.full((2**21,), 0.01, device=device)

    def work() -> None:
        x: Tensor = wide
        with torch.no_grad():
            for _ in range(4):
                for _ in range(5):
                    left @ left
                x = torch.tanh(x + 1)

    return work


def _timed(work: Callable[[], None], clock: Clock) -> float:
    """Of the work alone: copies on other streams may go on behind it."""
    clock.start()
    work()
    return clock.stop()
