"""Swap files that misbehave as told: `DiskSpace(FaultyFile(folder))`, `DiskSpace(SlowFile(folder, seconds))`."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import sleep

from lowtide.device.swap.swap_file import SwapFile

Call = Callable[[memoryview, int], int]
Fault = Callable[[Call, memoryview, int], int]
"""Does one call of the file system in its own way, given how it is done right."""


class FaultyFile(SwapFile):
    """A real file. The next calls that write, read or make room do as `writes`, `reads` and `room` say, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.writes: list[Fault] = []
        self.reads: list[Fault] = []
        self.room: list[OSError] = []

    def _allocate(self, offset: int, size: int) -> None:
        super()._allocate(offset, size // 2 if self.room else size)
        if self.room:
            raise self.room.pop(0)

    def _pwrite(self, data: memoryview, offset: int) -> int:
        fault = self.writes.pop(0) if self.writes else right
        return fault(super()._pwrite, data, offset)

    def _pread(self, data: memoryview, offset: int) -> int:
        fault = self.reads.pop(0) if self.reads else right
        return fault(super()._pread, data, offset)


class SlowFile(SwapFile):
    """A real file on a disk that takes `delay` seconds longer for every transfer."""

    def __init__(self, folder: Path, delay: float) -> None:
        super().__init__(folder)
        self.delay = delay

    def write(self, data: memoryview, offset: int) -> None:
        sleep(self.delay)
        super().write(data, offset)

    def read(self, data: memoryview, offset: int) -> None:
        sleep(self.delay)
        super().read(data, offset)


class GatedFile(SwapFile):
    """A real file whose transfers all wait until `gate` is set; `reached` is set when the first one waits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate = Event()
        self.reached = Event()

    def write(self, data: memoryview, offset: int) -> None:
        self._wait()
        super().write(data, offset)

    def read(self, data: memoryview, offset: int) -> None:
        self._wait()
        super().read(data, offset)

    def _wait(self) -> None:
        self.reached.set()
        assert self.gate.wait(60)


def right(call: Call, data: memoryview, offset: int) -> int:
    """As it should be."""
    return call(data, offset)


def one_block(call: Call, data: memoryview, offset: int) -> int:
    """A short transfer, which the caller has to continue."""
    with data[:4096] as part:
        return call(part, offset)


def no_progress(call: Call, data: memoryview, offset: int) -> int:
    """Neither bytes nor an error."""
    return 0


def failing(number: int) -> Fault:
    """The error with this number, after half of the bytes."""

    def fault(call: Call, data: memoryview, offset: int) -> int:
        with data[: len(data) // 8192 * 4096] as part:
            call(part, offset)
        raise OSError(number, os.strerror(number))

    return fault


def disk_full() -> OSError:
    """What making room raises then."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
