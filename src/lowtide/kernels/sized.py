"""Ops whose result has a size that depends on values, with the size given: what a condition on the batch has fixed."""

import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define("nonzero_of(Tensor mask, int count) -> Tensor")
_library.define("masked_select_of(Tensor x, Tensor mask, int count) -> Tensor")
_library.define("largest_of(Tensor numbers) -> int")
_library.define(
    "ctc_loss_of(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "bool zero_infinity, int longest) -> (Tensor, Tensor)"
)


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


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    zero_infinity: bool,
    longest: int,
) -> tuple[Tensor, Tensor]:
    given = (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    loss, alpha = torch.ops.aten._ctc_loss.Tensor(*given)
    if alpha.shape[-1] != 2 * longest + 1:
        raise RuntimeError(f"targets are as long as {alpha.shape[-1] // 2}, not {longest}; a bug in lowtide")
    return loss, alpha


def _ctc_loss_fake(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    zero_infinity: bool,
    longest: int,
) -> tuple[Tensor, Tensor]:
    time, batch, _ = log_probs.shape
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, time, 2 * longest + 1))


_library.impl("nonzero_of", _nonzero, "CompositeExplicitAutograd")
_library.impl("masked_select_of", _masked_select, "CompositeExplicitAutograd")


def _largest(numbers: Tensor) -> int:
    return int(numbers.max())


_library.impl("largest_of", _largest, "CompositeExplicitAutograd")
_library.impl("ctc_loss_of", _ctc_loss, "CompositeExplicitAutograd")
torch.library.register_fake("lowtide::ctc_loss_of", _ctc_loss_fake, lib=_library)
torch.library.register_fake("lowtide::nonzero_of", _nonzero_fake, lib=_library)
torch.library.register_fake("lowtide::masked_select_of", _masked_select_fake, lib=_library)

nonzero_of: OpOverload = torch.ops.lowtide.nonzero_of.default
largest_of: OpOverload = torch.ops.lowtide.largest_of.default
ctc_loss_of: OpOverload = torch.ops.lowtide.ctc_loss_of.default
masked_select_of: OpOverload = torch.ops.lowtide.masked_select_of.default
