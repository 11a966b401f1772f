"""What copies take from compute even where nothing waits for them: processor time, memory bandwidth, fresh pages."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

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
    rounds = [(_timed(work, space.device), *_copying(space, work)) for _ in range(_ROUNDS)]
    space.reset_waited()
    alone, out, back = (median(seconds) for seconds in zip(*rounds, strict=True))
    lost = max(0.0, out - alone) + max(0.0, back - alone)
    return float(1e3 * lost / (_VALUE * _VALUES / _MIB))


def _copying(space: SwapSpace, work: Callable[[], None]) -> tuple[float, float]:
    """Seconds of `work` while values go out, and while they come back; no name of them outlives this."""
    values = [torch.ones(_VALUE // 4, device=space.device) for _ in range(_VALUES)]
    parked = [space.offload(value) for value in values]
    out = _timed(work, space.device)
    for each in parked:
        space.settle(each)
    values = [space.prefetch(each) for each in parked]
    back = _timed(work, space.device)
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


def _timed(work: Callable[[], None], device: torch.device) -> float:
    begin = perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - begin
