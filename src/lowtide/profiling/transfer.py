"""Measures how fast bytes leave device memory and come back: disk for CPU tensors, host memory for CUDA tensors."""

import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter_ns

import torch

from lowtide.records.profile import TransferSample

_SIZES = (2**16, 2**20, 2**23, 2**26)
_REPEATS = 3


def measure_transfer(device: torch.device, largest: int) -> tuple[str, tuple[TransferSample, ...]]:
    """Where swapped bytes would go, and the measured time of each direction for sizes up to about `largest`."""
    sizes = [size for size in _SIZES if size <= max(largest, _SIZES[1])]
    return _host(device, sizes) if device.type == "cuda" else _disk(sizes)


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


def _disk(sizes: Sequence[int]) -> tuple[str, tuple[TransferSample, ...]]:
    """A file that is unlinked at once, past the page cache where the file system allows it."""
    direct = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "transfer"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        except OSError:  # a file system without direct I/O, such as tmpfs: measured through the page cache, and said
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            direct = False
        path.unlink()
        try:
            with mmap.mmap(-1, max(sizes)) as buffer:
                buffer.write(b"\1" * len(buffer))
                samples = tuple(_disk_sample(handle, buffer, size) for size in sizes)
        finally:
            os.close(handle)
    return ("disk, direct I/O" if direct else "disk, through the page cache"), samples


def _disk_sample(handle: int, buffer: mmap.mmap, size: int) -> TransferSample:
    out, back = [], []
    with memoryview(buffer) as view, view[:size] as part:
        for _ in range(_REPEATS):
            begin = perf_counter_ns()
            _all(os.pwrite, handle, part)
            middle = perf_counter_ns()
            _all(lambda fd, data, offset: os.preadv(fd, [data], offset), handle, part)
            out.append((middle - begin) / 1e6)
            back.append((perf_counter_ns() - middle) / 1e6)
    return TransferSample(size, median(out), median(back))


def _all(move: object, handle: int, part: memoryview) -> None:
    """Move all bytes, however many calls it takes."""
    assert callable(move)
    done = 0
    while done < len(part):
        with part[done:] as rest:
            done += move(handle, rest, done)


def _host(device: torch.device, sizes: Sequence[int]) -> tuple[str, tuple[TransferSample, ...]]:
    """Copies between the device and pinned host memory, timed with events."""
    samples = []
    for size in sizes:
        there = torch.empty(size, dtype=torch.uint8, device=device)
        here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        out = median(_event_ms(here, there) for _ in range(_REPEATS))
        back = median(_event_ms(there, here) for _ in range(_REPEATS))
        samples.append(TransferSample(size, out, back))
    return "host, pinned", tuple(samples)


def _event_ms(to: torch.Tensor, source: torch.Tensor) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    to.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
