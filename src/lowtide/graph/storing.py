"""How an activation can be stored other than as it is: in fewer bytes, without loss, or off the device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from lowtide.graph.ops import Op, Storage
from lowtide.kernels.draw import draw
from lowtide.kernels.packing import (
    INTEGERS,
    byte_table,
    pack_bits,
    pack_integers,
    sign_backward,
    unpack_bits,
    unpack_integers,
)
from lowtide.kernels.strides import is_dense
from lowtide.records.vocabulary import Phase, Role

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Packing:
    """A storage that can be kept smaller."""

    storage: int
    node: fx.Node
    """The tensor that fills the storage."""
    bytes: int
    """Of the packed form."""
    small: torch.dtype | None
    """The integer type; None for bits."""
    on: float
    """The value that is not zero; for bits."""

    @property
    def pack(self) -> tuple[OpOverload, dict[str, object]]:
        """The op that makes the small form of a tensor, and its options."""
        return (pack_bits, {}) if self.small is None else (pack_integers, {"dtype": self.small})

    @property
    def unpack(self) -> tuple[OpOverload, tuple[object, ...], dict[str, object]]:
        """The op that makes the tensor again, its arguments after the small form, and its options."""
        value = self.node.meta["val"]
        shape = (list(value.shape), list(value.stride()))
        if self.small is not None:
            return unpack_integers, shape, {"dtype": value.dtype}
        return unpack_bits, shape, {"dtype": value.dtype, "on": self.on}

    @property
    def kind(self) -> str:
        """`bits` or the integer type, for reports."""
        return "bits" if self.small is None else str(self.small).removeprefix("torch.")


def packings(ops: tuple[Op, ...], storages: tuple[Storage, ...]) -> tuple[Packing, ...]:
    """The activations that can be packed."""
    nodes = {item.name: item for op in ops for item in (op.node, *op.items)}
    found = []
    for op in ops:
        if op.phase is not Phase.FORWARD or op.is_view:
            continue
        for made in op.outputs:
            storage = storages[made.storage]
            if storage.role is not Role.ACTIVATION or storage.maker != op.rank:
                continue
            node = nodes[made.name]
            value = node.meta.get("val")
            if value is None:
                continue  # put in by a plan, which packs what it wants to
            if value.numel() < 64 or value.numel() * value.element_size() != storage.bytes or not is_dense(value):
                continue
            if value.dtype is torch.bool:
                found.append(Packing(storage.index, node, -(-value.numel() // 8), None, 1.0))
            elif (on := _two_values(op.node)) is not None:
                found.append(Packing(storage.index, node, -(-value.numel() // 8), None, on))
            elif (most := _largest_index(op.node, node)) is not None:
                small = next(t for t in (torch.uint8, torch.int16, torch.int32) if most <= torch.iinfo(t).max)
                found.append(Packing(storage.index, node, value.numel() * small.itemsize, small, 0.0))
    return tuple(found)


def _two_values(node: fx.Node) -> float | None:
    """The value beside zero of a scaled Bernoulli draw (dropout's noise), as its kernel computes it."""
    if node.target is draw and str(node.args[0]).startswith("bernoulli_"):
        return 1.0
    if node.target in (aten.div.Scalar, aten.div.Tensor, aten.mul.Scalar, aten.mul.Tensor):
        source, factor = node.args[0], node.args[1]
        if isinstance(source, fx.Node) and isinstance(factor, int | float) and not node.kwargs:
            inner = _two_values(source)
            if inner is not None and factor != 0:
                value = node.meta["val"]
                ones = torch.full((64,), inner, dtype=value.dtype, device=value.device)
                scaled = node.target(ones, factor)
                if bool((scaled == scaled[0]).all()) and bool(torch.isfinite(scaled[0])) and scaled[0] != 0:
                    return float(scaled[0])
    return None


def _largest_index(node: fx.Node, output: fx.Node) -> int | None:
    """The largest index that a max-pool can give: its window's place in the plane."""
    pools = {aten.max_pool2d_with_indices.default: 2, aten.max_pool3d_with_indices.default: 3}
    dims = pools.get(node.target) if isinstance(node.target, OpOverload) else None
    if dims is None or output.args[1:] != (1,):
        return None
    source = node.args[0]
    assert isinstance(source, fx.Node)
    most = 1
    for size in source.meta["val"].shape[-dims:]:
        most *= int(size)
    return most - 1


def make_tables(ops: Iterable[Op], device: torch.device) -> None:
    """What `ops` look up, made before a step runs: no part of the step."""
    for op in ops:
        if op.node.target is unpack_bits:
            given: Any = op.node.kwargs
            byte_table(given["dtype"], device, given["on"])
        elif op.node.target is sign_backward:
            byte_table(INTEGERS[op.node.meta["val"].element_size()], device, -1.0)


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
