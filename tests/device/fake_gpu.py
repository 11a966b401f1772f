"""A GPU that is not there: the CPU's memory behind torch.cuda's functions, so that every CUDA path of lowtide runs.

Tensors stay on the CPU, whose allocator the shim counts. What a real GPU may do wrong is an attribute to switch on.
"""

from contextlib import nullcontext
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lowtide.device import cuda
from lowtide.device.shim import load_shim
from lowtide.device.swap import host
from lowtide.kernels import replay


class FakeGpu:
    """Put behind torch.cuda for the length of a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.device = torch.device("cpu")
        self.share = 1.0
        """Of what is taken since the peak statistics were reset, by which they say more or less."""
        self.keeps_peak = False
        """Peak statistics are never reset."""
        self.loses_copies = False
        """Pinned memory does not hold what is copied there."""
        self.draws_on = False
        """The generator does not go back to a state."""
        self._shim = load_shim()
        self._base = 0
        self._pinned: list[Any] = []
        patch.setattr(cuda, "type_of", lambda device: "cuda")
        patch.setattr(host, "pinned", self._pin)
        patch.setattr(replay, "generator_of", lambda device: _Generator(self))
        for name, function in {
            "memory_stats": self._memory_stats,
            "reset_peak_memory_stats": self._reset_peak,
            "current_stream": lambda device: _Stream(),
            "Stream": lambda device: _Stream(),
            "Event": lambda **_: _Event(self),
            "stream": nullcontext,
            "get_allocator_backend": lambda: "native",
            "get_device_name": lambda device: "A card",
            "get_device_capability": lambda device: (9, 0),
            "mem_get_info": lambda device: (79 * 2**30, 80 * 2**30),
            "get_device_properties": lambda device: SimpleNamespace(total_memory=80 * 2**30),
        }.items():
            patch.setattr(torch.cuda, name, function)

    def _memory_stats(self, device: torch.device) -> dict[str, int]:
        peak = self._base + int(self.share * (self._shim.lowtide_peak() - self._base))
        return {"requested_bytes.all.current": self._shim.lowtide_current(), "requested_bytes.all.peak": peak}

    def _reset_peak(self, device: torch.device) -> None:
        if not self.keeps_peak:
            self._shim.lowtide_reset_peak()
            self._base = self._shim.lowtide_current()

    def _pin(self, size: int) -> Tensor:
        """Not from torch's allocator: host memory is none of the device's."""
        self._pinned.append(np.empty(size, dtype=np.uint8))
        return torch.from_numpy(self._pinned[-1])

    def copied(self) -> None:
        """Some copies are over."""
        if self.loses_copies:
            for piece in self._pinned:
                piece.fill(0)


class _Stream:
    def wait_stream(self, other: "_Stream") -> None:
        """Copies are over when they are asked for."""

    def wait_event(self, event: "_Event") -> None:
        """And so are events."""

    def synchronize(self) -> None:
        """Nothing is left to do."""


class _Event:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.at = 0.0

    def record(self, stream: _Stream) -> None:
        self.at = perf_counter()
        self._gpu.copied()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """It has happened."""

    def elapsed_time(self, other: "_Event") -> float:
        return 1000 * (other.at - self.at)


class _Generator:
    """The CPU's, which real kernels draw from."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu

    def get_state(self) -> Tensor:
        return torch.default_generator.get_state()

    def set_state(self, state: Tensor) -> None:
        if not self._gpu.draws_on:
            torch.default_generator.set_state(state)
