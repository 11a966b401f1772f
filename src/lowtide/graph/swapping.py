"""Values that leave the device for a while: the ops that send them away and bring them back, and which values can go.

`offload` and `prefetch` start a copy and return at once; `release` and `arrive` wait for it, or make the device wait:
all that the program does behind them is behind the copy. Whoever runs the step
gives it the space that the values go to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, fx

from lowtide.graph.ops import Op, Storage
from lowtide.graph.packing import is_dense
from lowtide.optimizer.update import Ledger
from lowtide.records.vocabulary import Phase, Role


class Space(Protocol):
    """Where values go. What `offload` returns stands for a value that is away."""

    def offload(self, value: Tensor) -> Any:
        """Start to copy `value` out; it must live on until `settle`."""

    def settle(self, parked: Any) -> None:
        """Wait for the copy out."""

    def prefetch(self, parked: Any) -> Tensor:
        """Take memory for the value and start to copy it back."""

    def arrive(self, value: Tensor) -> None:
        """Wait for the copy back."""


def space_of(ledger: Ledger) -> Space:
    """The space that the run of a step was given."""
    space: Space | None = ledger.space
    assert space is not None, "a step that swaps needs a space"
    return space


def offload(ledger: Ledger, value: Tensor) -> Any:
    """Start to copy a value out."""
    return space_of(ledger).offload(value)


def release(ledger: Ledger, parked: Any, value: Tensor) -> None:
    """Wait until the copy out is complete; the program drops `value` behind it."""
    space_of(ledger).settle(parked)


def prefetch(ledger: Ledger, parked: Any) -> Tensor:
    """Memory for a value, which is on its way back."""
    return space_of(ledger).prefetch(parked)


def arrive(ledger: Ledger, value: Tensor) -> None:
    """Wait until a value is back."""
    space_of(ledger).arrive(value)


SWAP_OPS: tuple[Callable[..., Any], ...] = (offload, release, prefetch, arrive)
"""They are given the ledger as well."""
WAITS: tuple[Callable[..., Any], ...] = (release, arrive)
"""They give nothing back."""


@dataclass(frozen=True, slots=True)
class Swapping:
    """A storage that can be swapped."""

    storage: int
    node: fx.Node
    """The tensor that fills the storage."""


def swappings(ops: Sequence[Op], storages: Sequence[Storage]) -> tuple[Swapping, ...]:
    """The activations that one dense tensor fills."""
    nodes = {item.name: item for op in ops for item in (op.node, *op.items)}
    found: dict[int, Swapping] = {}
    for op in ops:
        if op.phase is not Phase.FORWARD or op.is_view:
            continue
        for made in op.outputs:
            storage = storages[made.storage]
            value = nodes[made.name].meta["val"]
            fills = value.numel() * value.element_size() == storage.bytes and is_dense(value)
            if storage.role is Role.ACTIVATION and storage.maker == op.rank and fills:
                found.setdefault(storage.index, Swapping(storage.index, nodes[made.name]))
    return tuple(found.values())
