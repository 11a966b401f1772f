"""Measures how fast bytes leave device memory and come back: disk for CPU tensors, host memory for CUDA tensors."""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing

import torch

from lowtide.device.swap import measure, open_space
from lowtide.records.profile import TransferSample


def measure_transfer(device: torch.device, largest: int) -> tuple[str, tuple[TransferSample, ...]]:
    """Where swapped bytes would go, and the measured time of each direction for sizes up to about `largest`."""
    with closing(open_space("host" if device.type == "cuda" else "disk", device)) as space:
        samples = measure(space, largest)
        return space.kind, tuple(TransferSample(sample.bytes, sample.out_ms, sample.in_ms) for sample in samples)


def transfer_ms(samples: Sequence[TransferSample], size: int) -> float:
    """Time of one transfer of `size` bytes in the slower direction, between the measured sizes and beyond them.

    0 where nothing was measured.
    """
    if not samples:
        return 0.0
    times = [max(sample.out_ms, sample.in_ms) for sample in samples]
    place = bisect_left([sample.bytes for sample in samples], size)
    if place == 0:
        return times[0] * max(size / samples[0].bytes, 1.0)
    if place == len(samples):
        return times[-1] * size / samples[-1].bytes
    low, high = samples[place - 1], samples[place]
    share = (size - low.bytes) / (high.bytes - low.bytes)
    return times[place - 1] + share * (times[place] - times[place - 1])
