"""How fast a swap space is, and what copies take from compute even where nothing waits for them: processor time, memory
bandwidth, fresh pages. Measured through the very calls that training makes."""

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from lowtide.device.clock import Clock, clock_for
from lowtide.device.swap.space import SwapSpace
from lowtide.records.transfer import TransferSample

_SIZES = (2**16, 2**20, 2**23, 2**26)
_REPEATS = 3
_VALUE = 2**22
"""Bytes of each value that is copied: as activations are."""
_VALUES = 8
_ROUNDS = 5
_MIB = 2**20


def measure_copies(space: SwapSpace, largest: int) -> tuple[TransferSample, ...]:
    """Both directions for sizes from 64 KiB, where latency counts, up to about `largest`, where bandwidth does."""
    sizes = [size for size in _SIZES if size <= max(largest, _SIZES[1])]
    space.reserve(sizes[-1])
    return tuple(_sample(space, size) for size in sizes)


def _sample(space: SwapSpace, size: int) -> TransferSample:
    """Medians, after one round to warm up."""
    rounds = [_round(space, size) for _ in range(1 + _REPEATS)][1:]
    return TransferSample(size, median(out for out, _ in rounds), median(back for _, back in rounds))


def _round(space: SwapSpace, size: int) -> tuple[float, float]:
    """Milliseconds out and back, on the device's clock; the memory is given back in between, as training does."""
    clock = clock_for(space.device)
    value = torch.arange(size // 8, device=space.device)
    clock.start()
    parked = space.offload(value)
    space.settle(parked)
    out = clock.stop()
    del value
    clock.start()
    value = space.prefetch(parked)
    space.arrive(value)
    return out, clock.stop()


def measure_slowdown(space: SwapSpace) -> float:
    """Milliseconds that compute loses for every MiB that goes out and comes back; medians of rounds in turn.

    Compute is matrix products and passes over memory, on all threads, as long as the copies are under way.
    """
    space.reserve(_VALUE * _VALUES)
    work = compute_of_a_while(space.device)
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


def compute_of_a_while(device: torch.device, rounds: int = 4) -> Callable[[], None]:
    """Some tens of milliseconds of compute, without random numbers, which are the user's."""
    left, wide = torch.full((768, 768), 0.01, device=device), torch.full((2**21,), 0.01, device=device)

    def work() -> None:
        x: Tensor = wide
        with torch.no_grad():
            for _ in range(rounds):
                for _ in range(5):
                    left @ left
                x = torch.tanh(x + 1)

    return work


def _timed(work: Callable[[], None], clock: Clock) -> float:
    """Of the work alone: copies on other streams may go on behind it."""
    clock.start()
    work()
    return clock.stop()
