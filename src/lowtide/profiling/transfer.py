"""Measures how fast bytes leave device memory and come back: disk for CPU tensors, host memory for CUDA tensors."""

from contextlib import closing

import torch

from lowtide.device.swap import measure, open_space
from lowtide.records.profile import TransferSample


def measure_transfer(device: torch.device, largest: int) -> tuple[str, tuple[TransferSample, ...]]:
    """Where swapped bytes would go, and the measured time of each direction for sizes up to about `largest`."""
    with closing(open_space("host" if device.type == "cuda" else "disk", device)) as space:
        samples = measure(space, largest)
        return space.kind, tuple(TransferSample(sample.bytes, sample.out_ms, sample.in_ms) for sample in samples)
