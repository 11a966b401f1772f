"""`lowtide::restride`: a copy of a tensor in given strides, as a pure op."""

from collections.abc import Sequence

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
