"""Sampler: looks at the allocator's bytes again and again while something runs."""

from collections.abc import Callable
from threading import Event, Thread
from time import perf_counter

import torch

from lowtide.device import cuda
from lowtide.device.meter import Taken, meter_for
from lowtide.device.shim import compiler, load_shim
from lowtide.errors import InputError


class Sampler:
    """Bytes over time, from a thread of its own: `with sampler: step(batch)`, then `samples` and `taken`."""

    def __init__(self, device: torch.device, every_ms: float) -> None:
        self.every_ms = every_ms
        self.samples: list[tuple[float, int]] = []
        """Milliseconds and bytes since the block began."""
        self.taken = Taken(0, 0)
        """What the allocator did in the block, also between two samples."""
        self._current = _current_bytes(device)
        self._meter = meter_for(device)
        self._over = Event()

    def __enter__(self) -> "Sampler":
        self.samples = []
        self._over.clear()
        self._thread = Thread(target=self._watch, name="lowtide-sampler", daemon=True)
        self._meter.start()
        self._began, self._before = perf_counter(), self._current()
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()
        self.taken = self._meter.stop()

    def _watch(self) -> None:
        while not self._over.wait(self.every_ms / 1000):
            self._look()

    def _look(self) -> None:
        self.samples.append((1000 * (perf_counter() - self._began), self._current() - self._before))


def _current_bytes(device: torch.device) -> Callable[[], int]:
    if cuda.type_of(device) == "cuda":
        meant = cuda.indexed(device)  # here, not in the thread that looks, whose current device is another
        return lambda: cuda.asked_bytes(meant)[0]
    if compiler() is None:
        raise InputError("sampling memory on the CPU needs the allocator shim, which needs a C++ compiler: install g++")
    current: Callable[[], int] = load_shim().lowtide_current
    return current
