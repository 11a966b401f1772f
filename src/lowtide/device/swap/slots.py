"""Which parts of the room are free. Any values that fit by their sum fit: one may lie in several pieces."""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class Extent(NamedTuple):
    """A piece of the room."""

    start: int
    size: int


class Slots:
    """Free extents by their start, neighbours joined. What is given back counts at the next look."""

    def __init__(self) -> None:
        self._free: list[Extent] = []
        # An append is atomic: the collector may give back from any thread, in the middle of anything.
        self._given: deque[tuple[Extent, ...]] = deque()

    @property
    def free_bytes(self) -> int:
        """Bytes that can be taken."""
        self._collect()
        return sum(extent.size for extent in self._free)

    def take(self, size: int) -> tuple[Extent, ...] | None:
        """Room for `size` bytes, in one piece where there is one; None where there is not enough."""
        if size > self.free_bytes:
            return None
        taken = []
        while size:
            fitting = [extent for extent in self._free if extent.size >= size]
            chosen = min(fitting, key=_size) if fitting else max(self._free, key=_size)
            part = Extent(chosen.start, min(size, chosen.size))
            self._free.remove(chosen)
            if chosen.size > part.size:
                insort(self._free, Extent(part.start + part.size, chosen.size - part.size))
            taken.append(part)
            size -= part.size
        return tuple(taken)

    def give(self, extents: tuple[Extent, ...]) -> None:
        """These are free (again). May be called at any time, also while another call is under way."""
        self._given.append(extents)

    def _collect(self) -> None:
        if self._given:
            returned: list[Extent] = []
            while self._given:
                returned += self._given.popleft()
            self._free = _joined([*self._free, *returned])


def _size(extent: Extent) -> int:
    return extent.size


def _joined(extents: Iterable[Extent]) -> list[Extent]:
    """In order, with neighbours made one."""
    joined: list[Extent] = []
    for extent in sorted(extents):
        if joined and joined[-1].start + joined[-1].size == extent.start:
            joined[-1] = Extent(joined[-1].start, joined[-1].size + extent.size)
        else:
            joined.append(extent)
    return joined
