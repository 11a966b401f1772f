"""The disk tier, for CPU tensors: one nameless file, one thread, and no copy of the bytes on the way.

Direct I/O takes only whole blocks at addresses that are multiples of a block, and torch's tensors start anywhere. So
the whole blocks between the first such address and the end of the value go to the file from where they lie, and the
edges, less than two blocks, stay in memory with the `Parked`. As many blocks are taken as fit into the value wherever
it may start: so they can be read back into any other memory from its own first such address on, and where that lies
otherwise they are moved into place by one `memmove` of less than a block's distance. No buffers are needed.
"""

import ctypes
import os
from dataclasses import dataclass
from functools import partial
from weakref import WeakSet, finalize

import torch
from torch import Tensor

from lowtide.device.swap.lane import Cancelled, Lane, Transfer
from lowtide.device.swap.slots import Extent, Slots
from lowtide.device.swap.space import Parked, SwapError, SwapSpace, bytes_of, check_value
from lowtide.device.swap.swap_file import SwapFile
from lowtide.units import format_bytes

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is: bytes `begin` to `end` in the extents of the file, the edges here."""

    extents: tuple[Extent, ...]
    begin: int
    end: int
    head: bytes
    tail: bytes


class ParkedOnDisk(Parked):
    """A value in the file."""

    def __init__(self, value: Tensor, place: Place, written: Transfer, slots: Slots) -> None:
        super().__init__(value)
        self.place = place
        self.written = written
        self.slots = slots

    def __del__(self) -> None:
        """A transfer that still uses the extents stands in the lane before every later one that may get them."""
        self.slots.give(self.place.extents)


class DiskSpace(SwapSpace):
    """Values of CPU tensors in a file."""

    def __init__(self, file: SwapFile) -> None:
        super().__init__(_CPU)
        self.kind = file.kind
        self.in_memory = file.in_memory
        self._file = file
        self._slots = Slots()
        self._lane = Lane()
        self._coming: dict[int, Transfer] = {}
        self._process = os.getpid()
        self._end = finalize(self, _shut, self._lane, file)
        _SPACES.add(self)

    def reserve(self, capacity: int) -> None:
        """Blocks of the disk that are ours from now on."""
        self._check()
        more = -(-capacity // self._file.block) * self._file.block - self._file.size
        if more > 0:
            start = self._file.size
            self._file.grow(start + more)
            self._slots.give((Extent(start, more),))

    def offload(self, value: Tensor) -> Parked:
        """The thread writes from the value's own memory."""
        self._check()
        check_value(value, self.device)
        inner = _whole_blocks(value.nbytes, self._file.block)
        extents = self._slots.take(inner)
        if extents is None:
            raise SwapError(
                f"{format_bytes(inner)} more do not fit into the swap file in {self._file.folder}, which has "
                f"{format_bytes(self._slots.free_bytes)} of {format_bytes(self._file.size)} free: reserve more"
            )
        place = _place(value, extents, self._file.block)
        written = self._lane.put(partial(_write, self._file, _view(value, place.begin, place.end), place))
        return ParkedOnDisk(value, place, written, self._slots)

    def settle(self, parked: Parked) -> None:
        """Block until the last byte is in the file."""
        written = self._known(parked).written
        with self._waiting("settle"):
            written.wait()
        self._raise(written, f"writing {format_bytes(parked.bytes)}")

    def prefetch(self, parked: Parked) -> Tensor:
        """The thread reads into the new value's own memory."""
        known = self._known(parked)
        value = known.like(self.device)
        work = partial(_read, self._file, _view(value, 0, value.nbytes), known.place, known.written)
        self._coming[value.untyped_storage()._cdata] = self._lane.put(work)
        return value

    def arrive(self, value: Tensor) -> None:
        """Block until the last byte is in memory."""
        self._check()
        coming = self._coming.pop(value.untyped_storage()._cdata, None)
        if coming is None:
            raise SwapError("arrive was asked for a value that is not on its way: prefetch it, and wait for it once")
        with self._waiting("arrive"):
            coming.wait()
        self._raise(coming, f"reading {format_bytes(value.nbytes)}")

    def recover(self) -> None:
        """Values that are still parked are forgotten, so that their room can be used at once."""
        self._check()
        self._lane.cancel()
        self._coming.clear()
        self._slots = Slots()
        self._slots.give((Extent(0, self._file.size),))

    def close(self) -> None:
        """The thread ends and the file is gone."""
        self._end()

    def abandon(self) -> None:
        """In a forked child: the space is its parent's. Lets go of the file, which would keep its room otherwise."""
        self._end.detach()
        self._file.close()

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise SwapError("a swap space cannot be used in a forked process: open one there")
        if not self._end.alive:
            raise SwapError("the swap space is closed")

    def _known(self, parked: Parked) -> ParkedOnDisk:
        self._check()
        assert isinstance(parked, ParkedOnDisk)
        if parked.slots is not self._slots:
            raise SwapError("this value was forgotten when the swap space recovered from a broken step")
        return parked

    def _raise(self, transfer: Transfer, doing: str) -> None:
        """The failure of `transfer`, if any, as one sentence."""
        failure = transfer.failure
        if isinstance(failure, OSError):
            raise SwapError(
                f"{doing} of swapped values in {self._file.folder} failed: {failure.strerror or failure}; "
                "look after that disk or give another folder to swap into"
            ) from failure
        if isinstance(failure, Cancelled):
            raise SwapError(f"{doing} of swapped values was called off")
        if failure is not None:
            raise failure


def _whole_blocks(size: int, block: int) -> int:
    """Bytes of whole blocks that `size` bytes hold wherever they start."""
    return max(size - (block - 1), 0) // block * block


def _place(value: Tensor, extents: tuple[Extent, ...], block: int) -> Place:
    address = value.untyped_storage().data_ptr()
    inner = sum(extent.size for extent in extents)
    begin = -address % block if inner else 0
    end = begin + inner
    tail = ctypes.string_at(address + end, value.nbytes - end)
    return Place(extents, begin, end, ctypes.string_at(address, begin), tail)


def _view(value: Tensor, begin: int, end: int) -> memoryview:
    """Bytes of the value, which they keep alive."""
    return bytes_of(value).numpy().data[begin:end]


def _write(file: SwapFile, data: memoryview, place: Place) -> None:
    done = 0
    for start, size in place.extents:
        file.write(data[done : done + size], start)
        done += size


def _read(file: SwapFile, data: memoryview, place: Place, written: Transfer) -> None:
    """Into the value's own aligned part, from there into place, and then the edges, which that may have covered."""
    if written.failure is not None:
        raise written.failure
    if place.extents:
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        aligned = -address % file.block
        done = aligned
        for start, size in place.extents:
            file.read(data[done : done + size], start)
            done += size
        if aligned != place.begin:
            ctypes.memmove(address + place.begin, address + aligned, done - aligned)
    data[: place.begin] = place.head
    data[place.end :] = place.tail


def _shut(lane: Lane, file: SwapFile) -> None:
    lane.close()
    file.close()


_SPACES: WeakSet[DiskSpace] = WeakSet()


def _abandon_all() -> None:
    for space in list(_SPACES):
        space.abandon()


os.register_at_fork(after_in_child=_abandon_all)
