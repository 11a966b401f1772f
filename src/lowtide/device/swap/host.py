"""The host tier, for CUDA tensors: pinned memory that is reused, and one stream in each direction."""

from bisect import bisect_right
from collections import deque

import torch
from torch import Tensor

from lowtide.device.cuda import indexed
from lowtide.device.swap.slots import Extent, Slots
from lowtide.device.swap.space import Parked, SwapError, SwapSpace, Waited, bytes_of, check_value
from lowtide.units import format_bytes


class ParkedOnHost(Parked):
    """A value in pinned memory; `value` is held until it is settled."""

    def __init__(self, value: Tensor, extents: tuple[Extent, ...], slots: Slots, written: torch.cuda.Event) -> None:
        super().__init__(value)
        self.value: Tensor | None = value
        self.extents = extents
        self.slots = slots
        self.written = written

    def __del__(self) -> None:
        """Who takes the room next writes to it behind every copy that uses it now: behind copies out, which stand on
        one stream, and behind copies back, as the stream that asks has waited for those."""
        self.slots.give(self.extents)


class HostSpace(SwapSpace):
    """Values of CUDA tensors in pinned host memory.

    `settle` and `arrive` make the current stream wait for the event of the copy; the host goes on. Memory that is
    freed afterwards belongs to that stream, so whatever it is used for next runs behind the copy. It needs no
    `record_stream`, which would hold it back until some later allocation looks, and so the budget holds at every
    instant. All calls for one value must be made on one stream, or on streams that wait for each other.
    """

    kind = "host, pinned"

    def __init__(self, device: torch.device) -> None:
        super().__init__(indexed(device))
        self._out, self._in = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        self._slots = Slots()
        self._pool = Pool()
        self._closed = False
        self._coming: dict[int, tuple[torch.cuda.Event, Tensor, Parked]] = {}
        self._waits: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()
        """What for, from when and until when the current stream waited; not counted yet."""

    def reserve(self, capacity: int) -> None:
        """More pinned memory where there is not enough yet."""
        self._check()
        more = capacity - self._pool.size
        if more > 0:
            try:
                memory = pinned(more)
            except RuntimeError as error:
                raise SwapError(
                    f"no room for {format_bytes(capacity)} of swapped values in pinned host memory: "
                    f"{str(error).splitlines()[0]}"
                ) from error
            self._slots.give((self._pool.add(memory),))

    def offload(self, value: Tensor) -> Parked:
        """Behind everything that was asked of the current stream so far, which makes the value."""
        self._check()
        check_value(value, self.device)
        extents = self._slots.take(value.nbytes)
        if extents is None:
            raise SwapError(
                f"{format_bytes(value.nbytes)} more do not fit into the pinned host memory, which has "
                f"{format_bytes(self._slots.free_bytes)} of {format_bytes(self._pool.size)} free: reserve more"
            )
        self._out.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._out):
            for here, there in self._pool.pairs(extents, bytes_of(value)):
                here.copy_(there, non_blocking=True)
            written = torch.cuda.Event()
            written.record(self._out)
        return ParkedOnHost(value, extents, self._slots, written)

    def settle(self, parked: Parked) -> None:
        """What the current stream does from now on, it does behind the copy."""
        known = self._known(parked)
        self._stand_behind(known.written, "settle")
        known.value = None

    def prefetch(self, parked: Parked) -> Tensor:
        """Behind the copy out, and behind what the current stream may still do with the memory it had before."""
        known = self._known(parked)
        value = known.like(self.device)
        self._in.wait_stream(torch.cuda.current_stream(self.device))
        self._in.wait_event(known.written)
        with torch.cuda.stream(self._in):
            for here, there in self._pool.pairs(known.extents, bytes_of(value)):
                there.copy_(here, non_blocking=True)
            read = torch.cuda.Event()
            read.record(self._in)
        # Held until it arrives: the value, so that its memory is not given to others, and the room it comes from.
        self._coming[value.untyped_storage()._cdata] = (read, value, parked)
        return value

    def arrive(self, value: Tensor) -> None:
        """What the current stream does from now on, it does behind the copy."""
        self._check()
        key = value.untyped_storage()._cdata
        if key not in self._coming:
            raise SwapError("arrive was asked for a value that is not on its way: prefetch it, and wait for it once")
        self._stand_behind(self._coming.pop(key)[0], "arrive")

    @property
    def waited(self) -> Waited:
        """How long the device's stream stood still, once it has done all that it was asked for."""
        if self._waits:
            self._waits[-1][2].synchronize()
        self._count()
        return super().waited

    def reset_waited(self) -> None:
        """Count from zero again, from what is asked for next."""
        self._waits.clear()
        super().reset_waited()

    def _stand_behind(self, event: torch.cuda.Event, what: str) -> None:
        stream = torch.cuda.current_stream(self.device)
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record(stream)
        stream.wait_event(event)
        ended.record(stream)
        self._waits.append((what, began, ended))
        self._count()

    def _count(self) -> None:
        """Add up the waits that are over, and forget them."""
        while self._waits and self._waits[0][2].query():
            what, began, ended = self._waits.popleft()
            self._waited[what] += began.elapsed_time(ended) / 1e3

    def recover(self) -> None:
        """Copies that were asked for are waited for; values that are still parked are forgotten."""
        self._check()
        self._forget()
        self._slots.give(self._pool.extents)

    def close(self) -> None:
        """Give the pinned memory back, to torch's cache of it."""
        if not self._closed:
            self._forget()
            self._pool = Pool()
            self._closed = True

    def _forget(self) -> None:
        self._out.synchronize()
        self._in.synchronize()
        self._coming.clear()
        self._slots = Slots()

    def _check(self) -> None:
        if self._closed:
            raise SwapError("the swap space is closed")

    def _known(self, parked: Parked) -> ParkedOnHost:
        self._check()
        assert isinstance(parked, ParkedOnHost)
        if parked.slots is not self._slots:
            raise SwapError("this value was forgotten when the swap space recovered from a broken step")
        return parked


def pinned(size: int) -> Tensor:
    """Host memory that the device copies from and to by itself; torch takes the next power of two from the driver."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


class Pool:
    """Pieces of host memory as one room of bytes. Pieces do not touch in it, so that no extent crosses two of them."""

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []
        self._starts: list[int] = []

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self._pieces)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Where the pieces are."""
        return tuple(Extent(start, piece.nbytes) for start, piece in zip(self._starts, self._pieces, strict=True))

    def add(self, piece: Tensor) -> Extent:
        """Where the new piece is."""
        self._starts.append(self._starts[-1] + self._pieces[-1].nbytes + 1 if self._starts else 0)
        self._pieces.append(piece)
        return self.extents[-1]

    def pairs(self, extents: tuple[Extent, ...], data: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The bytes of each extent beside those of `data` that belong there."""
        done, pairs = 0, []
        for start, size in extents:
            index = bisect_right(self._starts, start) - 1
            begin = start - self._starts[index]
            pairs.append((self._pieces[index][begin : begin + size], data[done : done + size]))
            done += size
        return pairs
