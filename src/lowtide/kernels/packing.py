"""Values that fit into fewer bytes without loss: masks of two values into bits, indices into small integers.

What ReLU's backward needs of its result is one bit per element as well: `sign_backward` reads those.
"""

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")
for _schema in (
    "pack_bits(Tensor x) -> Tensor",
    "unpack_bits(Tensor bits, int[] size, int[] stride, *, ScalarType dtype, float on) -> Tensor",
    "sign_backward(Tensor grad, Tensor bits) -> Tensor",
    "pack_integers(Tensor x, *, ScalarType dtype) -> Tensor",
    "unpack_integers(Tensor small, int[] size, int[] stride, *, ScalarType dtype) -> Tensor",
):
    _library.define(_schema, tags=(torch.Tag.needs_exact_strides,))  # they read elements as they lie in memory

_GATHER = 0x0102040810204080
"""Times eight bytes of 0 or 1, its highest byte has them as bits, the first byte lowest."""
_CHUNK = 1 << 19
"""Elements packed at a time on the CPU, so that what is between stays in the cache."""
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
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


def byte_table(dtype: torch.dtype, device: torch.device, on: float) -> Tensor:
    """Row b holds the eight values that byte b stands for; at most 16 KiB, made once and kept for good."""
    key = (dtype, device, on)
    if key not in _tables:
        bits = torch.arange(256).unsqueeze(1).bitwise_right_shift(torch.arange(8)) & 1
        _tables[key] = (bits.double() * on if dtype is not torch.bool else bits != 0).to(dtype).to(device)
    return _tables[key]


def _unpack_bits(bits: Tensor, size: list[int], stride: list[int], *, dtype: torch.dtype, on: float) -> Tensor:
    out = torch.empty_strided(size, stride, dtype=dtype, device=bits.device)
    flat, table = _flat(out), byte_table(dtype, bits.device, on)
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
    dtype = INTEGERS[grad.element_size()]
    flat, given, table = _flat(out).view(dtype), _flat(grad).view(dtype), byte_table(dtype, grad.device, -1.0)
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


def _pack_bits_fake(x: Tensor) -> Tensor:
    return x.new_empty(-(-x.numel() // 8), dtype=torch.uint8)


def _pack_integers_fake(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.numel(), dtype=dtype)


def _unpack_bits_fake(bits: Tensor, size: list[int], stride: list[int], *, dtype: torch.dtype, on: float) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=bits.device)


def _unpack_integers_fake(small: Tensor, size: list[int], stride: list[int], *, dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=small.device)


for _name, _fake in (
    ("pack_bits", _pack_bits_fake),
    ("unpack_bits", _unpack_bits_fake),
    ("pack_integers", _pack_integers_fake),
    ("unpack_integers", _unpack_integers_fake),
):
    torch.library.register_fake(f"lowtide::{_name}", _fake, lib=_library)

pack_bits: OpOverload = torch.ops.lowtide.pack_bits.default
unpack_bits: OpOverload = torch.ops.lowtide.unpack_bits.default
sign_backward: OpOverload = torch.ops.lowtide.sign_backward.default
pack_integers: OpOverload = torch.ops.lowtide.pack_integers.default
unpack_integers: OpOverload = torch.ops.lowtide.unpack_integers.default
