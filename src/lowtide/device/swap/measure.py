"""How fast a swap space is, measured through the very calls that training makes."""

from dataclasses import dataclass
from statistics import median

import torch

from lowtide.device.clock import clock_for
from lowtide.device.swap.space import SwapSpace

_SIZES = (2**16, 2**20, 2**23, 2**26)
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """One transfer of `bytes` in each direction, from asking for it until it is there, nothing else in flight."""

    bytes: int
    out_ms: float
    in_ms: float


def measure(space: SwapSpace, largest: int) -> tuple[Sample, ...]:
    """Both directions for sizes from 64 KiB, where latency counts, up to about `largest`, where bandwidth does."""
    sizes = [size for size in _SIZES if size <= max(largest, _SIZES[1])]
    space.reserve(sizes[-1])
    return tuple(_sample(space, size) for size in sizes)


def _sample(space: SwapSpace, size: int) -> Sample:
    """Medians, after one round to warm up."""
    rounds = [_round(space, size) for _ in range(1 + _REPEATS)][1:]
    return Sample(size, median(out for out, _ in rounds), median(back for _, back in rounds))


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
