"""An eager copy of a training, which takes the same steps: what `lowtide train --compare` measures against."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.device.exhausted import is_out_of_memory
from lowtide.errors import InputError, shortened
from lowtide.experiments.eager_training import EagerTraining
from lowtide.tracing.loss import Loss


class EagerCopy(EagerTraining):
    """The same model and optimizer, copied and trained as the user would."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss | None,
        *,
        accumulate: int = 1,
        clip_grad_norm: float | None = None,
    ) -> None:
        try:
            copied = copy.deepcopy((model, optimizer))
        except (TypeError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            name = type(model).__name__
            raise InputError(
                f"--compare trains a copy of {name}, which cannot be copied: {shortened(str(error), 300)}"
            ) from error
        super().__init__(*copied, loss, accumulate=accumulate, clip_grad_norm=clip_grad_norm)


def differences(
    ours: tuple[nn.Module, Optimizer], theirs: tuple[nn.Module, Optimizer], losses: tuple[Any, Any]
) -> Iterator[str]:
    """Everything that is not equal bit for bit: loss, gradients, parameters, buffers, optimizer state."""
    (model, optimizer), (other_model, other_optimizer) = ours, theirs
    for mine, other in zip(*(pytree.tree_leaves(loss) for loss in losses), strict=True):
        if not _same(mine, other):
            yield "the loss"
    for (name, mine), other in zip(model.named_parameters(), other_model.parameters(), strict=True):
        if not _same(mine, other):
            yield f"the parameter {name}"
        if not _same(mine.grad, other.grad):
            yield f"the gradient of {name}"
        state, other_state = optimizer.state.get(mine, {}), other_optimizer.state.get(other, {})
        for key in sorted(state.keys() | other_state.keys()):
            if not _same(state.get(key), other_state.get(key)):
                yield f"the optimizer's {key} of {name}"
    for (name, mine), other in zip(model.named_buffers(), other_model.buffers(), strict=True):
        if not _same(mine, other):
            yield f"the buffer {name}"


def _same(mine: Any, other: Any) -> bool:
    if not isinstance(mine, Tensor) or not isinstance(other, Tensor):
        return bool(mine == other)
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return False
    return torch.equal(mine, other) or torch.equal(_bits(mine), _bits(other))


def _bits(x: Tensor) -> Tensor:
    """No number is equal to itself where it is none: training that diverges is still the same training."""
    return x.detach().contiguous().reshape(-1).view(torch.uint8)
