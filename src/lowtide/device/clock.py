"""Device time and device size."""

import os
from time import perf_counter_ns
from typing import Protocol

import torch

from lowtide.device import cuda


class Clock(Protocol):
    """Measures how long the device worked on something, in milliseconds."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> float:
        """Milliseconds since `start`."""


class CpuClock:
    """Wall time; on the CPU an op is over when its call returns."""

    def start(self) -> None:
        """Begin."""
        self._begin = perf_counter_ns()

    def stop(self) -> float:
        """Milliseconds since `start`."""
        return (perf_counter_ns() - self._begin) / 1e6


class CudaClock:
    """CUDA events on the current stream of one device: its own time, whatever the host does meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = cuda.indexed(device)
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        """Begin."""
        self._begin.record(torch.cuda.current_stream(self._device))

    def stop(self) -> float:
        """Milliseconds since `start`."""
        self._end.record(torch.cuda.current_stream(self._device))
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end))


def clock_for(device: torch.device) -> Clock:
    """The clock of `device`."""
    return CudaClock(device) if cuda.type_of(device) == "cuda" else CpuClock()


def total_memory(device: torch.device) -> int:
    """Bytes that the device has."""
    if cuda.type_of(device) == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
