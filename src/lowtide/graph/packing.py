"""Values that fit into fewer bytes without loss: masks of two values into bits, indices into small integers.

What ReLU's backward needs of its result is one bit per element as well: `sign_backward` reads those.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from lowtide.graph.ops import Op, Storage
from lowtide.kernels.draw import draw
from lowtide.records.vocabulary import Phase, Role

aten = torch.ops.aten
_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("pack_bits(Tensor x) -> Tensor")
_library.define("unpack_bits(Tensor bits, int[] size, int[] stride, *, ScalarType dtype, float on) -> Tensor")
_library.define("sign_backward(Tensor grad, Tensor bits) -> Tensor")
_library.define("pack_integers(Tensor x, *, ScalarType dtype) -> Tensor")
_library.define("unpack_integers(Tensor small, int[] size, int[] stride, *, ScalarType dtype) -> Tensor")

_GATHER = 0x0102040810204080
"""Times eight bytes of 0 or 1, its highest byte has them as bits, the first byte lowest."""
_CHUNK = 1 << 19
"""Elements packed at a time on the CPU, so that what is between stays in the cache."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_tables: dict[tuple[torch.dtype, torch.device, float], Tensor] = {}


def _flat(x: Tensor) -> Tensor:
    """The elements of a dense tensor in the order they lie in memory."""
    return x.as_strided((x.numel(),), (1,))


def _pack_bits(x: Tensor) -> Tensor:
    flat = _flat(x)
    if x.device.type == "cpu":
        out = torch.empty(-(-len(flat) // 8), dtype=torch.uint8)
        for begin in range(0, len(flat), _CHUNK):
            some = flat[begin : begin + _CHUNK]
            bits = np.packbits((some if some.dtype is torch.bool else some != 0).numpy(), bitorder="little")
            out.numpy()[begin // 8 : begin // 8 + len(bits)] = bits
        return out
    return _gathered(flat)


def _gathered(flat: Tensor) -> Tensor:
    """As bits by arithmetic alone, which every device has."""
    ones = flat if flat.dtype is torch.bool else flat != 0
    missing = -len(ones) % 8
    if missing:
        ones = torch.cat([ones, ones.new_zeros(missing)])
    return (ones.view(torch.int64).mul(_GATHER) >> 56).to(torch.uint8)


def _table(dtype: torch.dtype, device: torch.device, on: float) -> Tensor:
    """Row b holds the eight values that byte b stands for."""
    key = (dtype, device, on)
    if key not in _tables:
        bits = torch.arange(256).unsqueeze(1).bitwise_right_shift(torch.arange(8)) & 1
        _tables[key] = (bits.double() * on if dtype is not torch.bool else bits != 0).to(dtype).to(device)
    return _tables[key]


def make_tables(ops: Iterable[Op], device: torch.device) -> None:
    """What `ops` look up, made before a step runs: at most 16 KiB each, kept for good and no part of the step."""
    for op in ops:
        if op.node.target is unpack_bits:
            given: Any = op.node.kwargs
            _table(given["dtype"], device, given["on"])
        elif op.node.target is sign_backward:
            _table(_INTEGERS[op.node.meta["val"].element_size()], device, -1.0)


def _unpack_bits(bits: Tensor, size: list[int], stride: list[int], *, dtype: torch.dtype, on: float) -> Tensor:
    out = torch.empty_strided(size, stride, dtype=dtype, device=bits.device)
    flat, table = _flat(out), _table(dtype, bits.device, on)
    whole = len(flat) // 8
    torch.index_select(table, 0, bits[:whole].int(), out=flat[: whole * 8].view(whole, 8))
    if whole * 8 < len(flat):
        rest = table.index_select(0, bits[whole:].int()).flatten()  # not by int(bits[...]): that waits for the device
        flat[whole * 8 :] = rest[: len(flat) - whole * 8]
    return out


def _sign_backward(grad: Tensor, bits: Tensor) -> Tensor:
    """`threshold_backward(grad, result, 0)` of a ReLU's result in the strides of `grad`, of which `bits` were packed.

    Works on the bytes: all of a gradient's bits stay or all are cleared, so that infinities and NaN do as well.
    """
    out = torch.empty_strided(grad.shape, grad.stride(), dtype=grad.dtype, device=grad.device)
    dtype = _INTEGERS[grad.element_size()]
    flat, given, table = _flat(out).view(dtype), _flat(grad).view(dtype), _table(dtype, grad.device, -1.0)
    chunk = _CHUNK if grad.device.type == "cpu" else max(len(flat), 8)
    whole = len(flat) // 8 * 8
    for begin in range(0, whole, chunk):
        end = min(begin + chunk, whole)
        some = flat[begin:end]
        torch.index_select(table, 0, bits[begin // 8 : end // 8].int(), out=some.view(-1, 8))
        torch.bitwise_and(some, given[begin:end], out=some)
    if whole < len(flat):
        rest = table.index_select(0, bits[whole // 8 :].int()).flatten()[: len(flat) - whole]
        torch.bitwise_and(rest, given[whole:], out=flat[whole:])
    return out


def _pack_integers(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    return _flat(x).to(dtype)


def _unpack_integers(small: Tensor, size: list[int], stride: list[int], *, dtype: torch.dtype) -> Tensor:
    out = torch.empty_strided(size, stride, dtype=dtype, device=small.device)
    _flat(out).copy_(small)
    return out


_library.impl("pack_bits", _pack_bits, "CompositeExplicitAutograd")
_library.impl("unpack_bits", _unpack_bits, "CompositeExplicitAutograd")
_library.impl("sign_backward", _sign_backward, "CompositeExplicitAutograd")
_library.impl("pack_integers", _pack_integers, "CompositeExplicitAutograd")
_library.impl("unpack_integers", _unpack_integers, "CompositeExplicitAutograd")

pack_bits: OpOverload = torch.ops.lowtide.pack_bits.default
unpack_bits: OpOverload = torch.ops.lowtide.unpack_bits.default
sign_backward: OpOverload = torch.ops.lowtide.sign_backward.default
pack_integers: OpOverload = torch.ops.lowtide.pack_integers.default
unpack_integers: OpOverload = torch.ops.lowtide.unpack_integers.default


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
            value = node.meta["val"]
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


def is_dense(value: Tensor) -> bool:
    """Do its elements fill their bytes without gaps or overlaps?"""
    return int(value.numel()) == 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))


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
