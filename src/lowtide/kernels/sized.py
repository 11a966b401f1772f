"""Ops whose result has a size that depends on values, with the size given: what a condition on the batch has fixed."""

import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("nonzero_of(Tensor mask, int count) -> Tensor")
_library.define("masked_select_of(Tensor x, Tensor mask, int count) -> Tensor")


def _counted(result: Tensor, count: int) -> Tensor:
    if result.shape[0] != count:
        raise RuntimeError(f"a mask of the batch selects {result.shape[0]} elements, not {count}; a bug in lowtide")
    return result


def _nonzero(mask: Tensor, count: int) -> Tensor:
    return _counted(torch.ops.aten.nonzero.default(mask), count)


def _nonzero_fake(mask: Tensor, count: int) -> Tensor:
    return torch.empty_strided((count, mask.dim()), (1, count), dtype=torch.int64, device=mask.device)


def _masked_select(x: Tensor, mask: Tensor, count: int) -> Tensor:
    return _counted(torch.ops.aten.masked_select.default(x, mask), count)


def _masked_select_fake(x: Tensor, mask: Tensor, count: int) -> Tensor:
    return x.new_empty((count,))


_library.impl("nonzero_of", _nonzero, "CompositeExplicitAutograd")
_library.impl("masked_select_of", _masked_select, "CompositeExplicitAutograd")
torch.library.register_fake("lowtide::nonzero_of", _nonzero_fake, lib=_library)
torch.library.register_fake("lowtide::masked_select_of", _masked_select_fake, lib=_library)

nonzero_of: OpOverload = torch.ops.lowtide.nonzero_of.default
masked_select_of: OpOverload = torch.ops.lowtide.masked_select_of.default
