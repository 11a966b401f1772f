"""Meters: how many bytes the allocator handed out while something ran, by the best means the device has."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar
from weakref import WeakSet

import torch
from torch.profiler import ProfilerActivity, profile

from lowtide.device import cuda
from lowtide.device.shim import compiler, load_shim

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """What the allocator did while a function ran, relative to before."""

    peak: int
    """The most bytes that were taken at once."""
    net: int
    """Bytes still taken afterwards."""


class Meter(Protocol):
    """Measures allocator bytes around a call."""

    name: str
    """For reports: who counted."""
    free: bool
    """Can every step be measured: at no cost, and without touching what is the user's?"""

    def start(self) -> None:
        """Begin to watch."""

    def stop(self) -> Taken:
        """What happened since `start`."""


class ShimMeter:
    """CPU, through the allocator shim: exact, sees all threads, costs nothing measurable. They nest."""

    name = "allocator shim"
    free = True
    _running: ClassVar["WeakSet[ShimMeter]"] = WeakSet()

    def __init__(self) -> None:
        shim = load_shim()
        self._current: Callable[[], int] = shim.lowtide_current
        self._peak: Callable[[], int] = shim.lowtide_peak
        self._reset: Callable[[], None] = shim.lowtide_reset_peak
        self._before = self._most = 0

    def start(self) -> None:
        """Begin to watch."""
        peak = self._peak()
        for outer in self._running:  # the shim has one peak, which is forgotten now
            outer._most = max(outer._most, peak)
        self._reset()
        self._before = self._most = self._current()
        self._running.add(self)

    def stop(self) -> Taken:
        """What happened since `start`."""
        self._running.discard(self)
        return Taken(max(self._most, self._peak()) - self._before, self._current() - self._before)


class ProfilerMeter:
    """CPU without a compiler, through torch.profiler: slow, and blind to what other threads allocate."""

    name = "torch.profiler"
    free = False

    def start(self) -> None:
        """Begin to watch."""
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        with _without_kineto_lines():
            self._profiler.__enter__()

    def stop(self) -> Taken:
        """What happened since `start`."""
        with _without_kineto_lines():
            self._profiler.__exit__(None, None, None)
        now = peak = 0
        for change in allocations(self._profiler):
            now += change
            peak = max(peak, now)
        return Taken(peak, now)


@contextmanager
def _without_kineto_lines() -> Iterator[None]:
    """Starting and stopping the profiler writes a line each to the process's stderr; thousands of them help nobody."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class CudaMeter:
    """CUDA, through the allocator's statistics. Each `start` resets the user's peak statistics: torch has no others."""

    name = "torch.cuda.memory_stats"
    free = False

    def __init__(self, device: torch.device) -> None:
        self._device = cuda.indexed(device)

    def start(self) -> None:
        """Begin to watch."""
        cuda.forget_peak(self._device)
        self._before, _ = cuda.asked_bytes(self._device)

    def stop(self) -> Taken:
        """What happened since `start`."""
        now, peak = cuda.asked_bytes(self._device)
        return Taken(peak - self._before, now - self._before)


def allocations(profiler: profile) -> list[int]:
    """The allocator's records of a torch.profiler run, in order: bytes taken, or given back where negative."""
    assert profiler.profiler is not None
    results = profiler.profiler.kineto_results
    assert results is not None
    found: list[tuple[int, int]] = []
    stack = list(results.experimental_event_tree())
    while stack:
        event = stack.pop()
        if hasattr(event.extra_fields, "alloc_size"):
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
        stack.extend(event.children)
    return [size for _, size in sorted(found, key=lambda pair: pair[0])]


def meter_for(device: torch.device) -> Meter:
    """The best meter that `device` has on this machine."""
    if cuda.type_of(device) == "cuda":
        return CudaMeter(device)
    if compiler() is not None:
        return ShimMeter()
    log.warning(
        "no C++ compiler found: memory is measured through torch.profiler, which is slower and blind to what "
        "other threads allocate; install g++ for exact figures"
    )
    return ProfilerMeter()
