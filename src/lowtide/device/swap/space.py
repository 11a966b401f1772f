"""What every swap space offers: values go out and come back in order, beside the computation."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from lowtide.errors import LowtideError
from lowtide.units import format_bytes


class SwapError(LowtideError, RuntimeError):
    """Bytes could not leave the device or come back; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds for which the computation stood still because of transfers."""

    settle_s: float = 0.0
    """For copies out to be complete."""
    arrive_s: float = 0.0
    """For values to be back."""


class Parked:
    """A value off the device. Its room is free again when the last reference to this dies."""

    def __init__(self, value: Tensor) -> None:
        self.shape = tuple(value.shape)
        self.strides = value.stride()
        self.dtype = value.dtype
        self.bytes = value.nbytes

    def like(self, device: torch.device) -> Tensor:
        """Memory on `device` in the form of the value, its bytes not set."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)


class SwapSpace(ABC):
    """Room off the device. Used by one thread at a time; transfers run in order, behind its back.

    Transfers of one direction start and are complete in the order in which they were asked for, and what comes back
    never starts before it has gone out completely. A transfer that fails says so when it is waited for, and touches no
    other value.
    """

    kind: str
    """Where the bytes go, for people."""
    in_memory: bool = False
    """Whether the bytes stay in the memory that they are to leave (a folder on tmpfs): it works, but saves nothing."""
    held_bytes: int = 0
    """Device bytes that the space itself holds all the time, as the allocator meter counts them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._waited = {"settle": 0.0, "arrive": 0.0}

    @abstractmethod
    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` bytes at once, of values of any sizes; SwapError where it is not there."""

    @abstractmethod
    def offload(self, value: Tensor) -> Parked:
        """Begin to copy `value` out and return at once; it must live on unchanged until `settle`."""

    @abstractmethod
    def settle(self, parked: Parked) -> None:
        """From now on the bytes of the value can be used again: all that follows is behind the copy out."""

    @abstractmethod
    def prefetch(self, parked: Parked) -> Tensor:
        """Take memory for the value, begin to copy it back and return at once. Any number of times."""

    @abstractmethod
    def arrive(self, value: Tensor) -> None:
        """From now on `value`, which `prefetch` gave, can be read: all that follows is behind the copy. Once each."""

    @abstractmethod
    def recover(self) -> None:
        """After a step that broke off: nothing is in flight or parked any more, and all room is free."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; done at the latest when the interpreter ends."""

    @property
    def waited(self) -> Waited:
        """How long `settle` and `arrive` held the computation up since `reset_waited`."""
        return Waited(self._waited["settle"], self._waited["arrive"])

    def reset_waited(self) -> None:
        """Count from zero again."""
        self._waited = dict.fromkeys(self._waited, 0.0)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Adds the time of the block to `waited`."""
        begin = perf_counter()
        try:
            yield
        finally:
            self._waited[what] += perf_counter() - begin


def check_value(value: Tensor, device: torch.device) -> None:
    """Only whole storages of `device` are parked: nothing else gives its memory back."""
    if value.device != device:
        raise SwapError(f"this swap space is for values on {device}, not on {value.device}")
    whole = value.untyped_storage().nbytes()
    if value.nbytes != whole:
        raise SwapError(
            f"a value of {format_bytes(value.nbytes)} in a storage of {format_bytes(whole)} cannot be swapped: "
            "offload the tensor that fills the storage"
        )


def bytes_of(value: Tensor) -> Tensor:
    """The storage of `value` as bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())
