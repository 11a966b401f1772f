"""`lowtide::restride`: a copy of a tensor in given strides, as a pure op."""

import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("restride(Tensor x, int[] stride) -> Tensor")


def _restride(x: Tensor, stride: list[int]) -> Tensor:
    return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device).copy_(x)


_library.impl("restride", _restride, "CompositeExplicitAutograd")

restride: OpOverload = torch.ops.lowtide.restride.default
