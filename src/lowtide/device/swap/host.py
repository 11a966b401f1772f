"""The host tier, for CUDA tensors: pinned memory that is reused, and one stream in each direction."""

from bisect import bisect_right

import torch
from torch import Tensor

from lowtide.device.swap.slots import Extent, Slots
from lowtide.device.swap.space import Parked, SwapError, SwapSpace, bytes_of, check_value
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
        """Only copies out can still be under way then, and they stand on one stream with every later one."""
        self.slots.give(self.extents)


class HostSpace(SwapSpace):
    """Values of CUDA tensors in pinned host memory.

    `settle` and `arrive` block until the event of the copy has come. So memory that is freed afterwards is free for
    every stream, needs no `record_stream`, which would hold it back until some later allocation looks, and the budget
    holds at every instant; the price is that the CPU does not run ahead of the device beyond such a point.
    """

    kind = "host, pinned"

    def __init__(self, device: torch.device) -> None:
        super().__init__(torch.empty(0, device=device).device)  # "cuda" as "cuda:0"
        self._out, self._in = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        self._slots = Slots()
        self._pool = Pool()
        self._closed = False
        self._coming: dict[int, tuple[torch.cuda.Event, Tensor, Parked]] = {}

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
        """Block until the device has done the copy."""
        known = self._known(parked)
        with self._waiting("settle"):
            known.written.synchronize()
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
        """Block until the device has done the copy."""
        self._check()
        key = value.untyped_storage()._cdata
        if key not in self._coming:
            raise SwapError("arrive was asked for a value that is not on its way: prefetch it, and wait for it once")
        with self._waiting("arrive"):
            self._coming[key][0].synchronize()
        del self._coming[key]

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
    """Host memory that the device copies from and to by itself."""
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
