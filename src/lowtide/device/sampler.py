"""Sampler: looks at the allocator's bytes again and again while something runs."""

from collections.abc import Callable
from threading import Event, Thread
from time import perf_counter

import torch

from lowtide.device.shim import compiler, load_shim
from lowtide.errors import InputError


class Sampler:
    """Bytes over time, from a thread of its own: `with sampler: step(batch)`, then `samples`.

    On CPU it counts what is allocated after it was made, so make it before the model.
    """

    def __init__(self, device: str, every_ms: float) -> None:
        self.every_ms = every_ms
        self.samples: list[tuple[float, int]] = []
        """Milliseconds since the block began, and bytes."""
        self._current = _current_bytes(device)
        self._over = Event()

    def __enter__(self) -> "Sampler":
        self.samples = []
        self._over.clear()
        self._thread = Thread(target=self._watch, name="lowtide-sampler", daemon=True)
        self._began = perf_counter()
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(self.every_ms / 1000):
            self._look()

    def _look(self) -> None:
        self.samples.append((1000 * (perf_counter() - self._began), self._current()))


def _current_bytes(device: str) -> Callable[[], int]:
    if device == "cuda":
        return torch.cuda.memory_allocated
    if compiler() is None:
        raise InputError("sampling memory on the CPU needs the allocator shim, which needs a C++ compiler: install g++")
    current: Callable[[], int] = load_shim().lowtide_current
    return current
