"""Pure ops that say in which strides their result lies: `lowtide::restride` and `lowtide::<op>_<overload>`.

`x.add_(y)` leaves its result in the strides of x. The out-of-place `x.add(y)` chooses its own, and strides decide
which kernel reads the result later, hence the last bit. Where the two differ, the graph uses the pure form of the
in-place op instead: copy in the same strides, then the in-place kernel itself.
"""

from collections.abc import Sequence
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


@cache
def pure_form(op: OpOverload, numbers: frozenset[str] = frozenset()) -> OpOverload:
    """The pure form of the in-place `op`, defined when first asked for.

    aten takes a Python number where its schema says Tensor, other ops do not: `numbers` names such arguments.
    """
    name = "_".join([f"{op._schema.name.removeprefix('aten::')}{op._overloadname}", *sorted(numbers)])
    schema = str(op._schema).replace("(a!)", "")
    for number in numbers:
        schema = schema.replace(f"Tensor {number}", f"Scalar {number}")
    _library.define(f"{name}{schema[schema.index('(') :]}")

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=self.device).copy_(self)
        op(out, *args, **kwargs)
        return out

    def fake(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=self.device)

    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"lowtide::{name}", fake, lib=_library)
    packet = getattr(torch.ops.lowtide, name)
    assert isinstance(packet.default, OpOverload)
    return packet.default
