"""Pure ops that say in which strides their result lies: `lowtide::restride`, `lowtide::<op>_<overload>` and
`lowtide::part_<op>_<overload>`.

`x.add_(y)` leaves its result in the strides of x. The out-of-place `x.add(y)` chooses its own, and strides decide
which kernel reads the result later, hence the last bit. Where the two differ, the graph uses the pure form of the
in-place op instead: copy in the same strides, then the in-place kernel itself. Where x is a part of a tensor with
gaps, as a chunk of columns is, that copy would have the gaps too; so the op takes and gives the whole tensor.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("restride(Tensor x, int[] stride) -> Tensor")


def _restride(x: Tensor, stride: list[int]) -> Tensor:
    return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device).copy_(x)


_library.impl("restride", _restride, "CompositeExplicitAutograd")

restride: OpOverload = torch.ops.lowtide.restride.default


def same_strides(x: Tensor, wanted: Sequence[int]) -> bool:
    """Does `x` lie in these strides, dimensions of one element aside?"""
    return all(size <= 1 or have == want for size, have, want in zip(x.shape, x.stride(), wanted, strict=True))


def is_dense(value: Tensor) -> bool:
    """Do its elements fill their bytes without gaps or overlaps?"""
    return int(value.numel()) == 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))


PARTS: dict[OpOverload, Callable[..., Tensor]] = {}
"""Ops on a part of a tensor, and what runs in their place where the tensor itself may be overwritten."""


@cache
def pure_form(op: OpOverload, numbers: frozenset[str] = frozenset()) -> OpOverload:
    """The pure form of the in-place `op`, defined when first asked for.

    aten takes a Python number where its schema says Tensor, other ops do not: `numbers` names such arguments.
    """

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out = _strided_like(self).copy_(self)
        op(out, *args, **kwargs)
        return out

    def fake(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _strided_like(self)

    return _defined("", "", op, numbers, run, fake)


@cache
def part_form(op: OpOverload, numbers: frozenset[str] = frozenset()) -> OpOverload:
    """The same for a part of a tensor, which is given by size, stride and offset: the whole tensor comes back."""

    def write(self: Tensor, size: Sequence[int], stride: Sequence[int], offset: int, *args: Any, **kw: Any) -> Tensor:
        op(self.as_strided(size, stride, offset), *args, **kw)
        return self

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return write(_strided_like(self).copy_(self), *args, **kwargs)

    def fake(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _strided_like(self)

    form = _defined("part_", ", int[] part_size, int[] part_stride, int part_offset", op, numbers, run, fake)
    write.__name__ = f"write_{form._schema.name.removeprefix('lowtide::')}"
    PARTS[form] = write
    return form


def _strided_like(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def _defined(
    prefix: str,
    arguments: str,
    op: OpOverload,
    numbers: frozenset[str],
    run: Callable[..., Tensor],
    fake: Callable[..., Tensor],
) -> OpOverload:
    """An op like the in-place `op` that writes none of its arguments, with more `arguments` behind the first."""
    name = prefix + "_".join([f"{op._schema.name.removeprefix('aten::')}{op._overloadname}", *sorted(numbers)])
    schema = str(op._schema).replace("(a!)", "").replace("Tensor self", f"Tensor self{arguments}", 1)
    for number in numbers:
        schema = schema.replace(f"Tensor {number}", f"Scalar {number}")
    _library.define(f"{name}{schema[schema.index('(') :]}")
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"lowtide::{name}", fake, lib=_library)
    packet = getattr(torch.ops.lowtide, name)
    assert isinstance(packet.default, OpOverload)
    return packet.default
