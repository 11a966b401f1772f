"""Training as a user would write it, measured, on a model or a copy of it: what planned steps are compared with."""

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.device.clock import clock_for
from lowtide.device.exhausted import is_out_of_memory
from lowtide.device.meter import meter_for
from lowtide.errors import InputError, shortened
from lowtide.kernels.shards import local
from lowtide.profiling.runs import no_collection
from lowtide.tracing.loss import Loss, model_loss

_PROFILED = 2
"""Steps whose bytes are counted where counting is not free: the second is the first with all of the state."""


class EagerTraining:
    """A model and its optimizer, trained eagerly step by step."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss | None,
        *,
        accumulate: int = 1,
        clip_grad_norm: float | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._loss = loss or model_loss
        self._accumulate = accumulate
        self._clip = clip_grad_norm
        device = next(self.model.parameters()).device
        self._clock, self._meter = clock_for(device), meter_for(device)
        self._calls = 0

    def step(self, batch: Any) -> tuple[Any, float, int | None]:
        """One call: the loss and what came with it, milliseconds, and bytes at the peak with the residents."""
        place = self._calls % self._accumulate
        if place == 0:
            self.optimizer.zero_grad(set_to_none=True)
        measures = self._calls < _PROFILED or self._meter.free
        before = held_bytes(self.model, self.optimizer, batch) if measures else 0
        with no_collection():
            if measures:
                self._meter.start()
            self._clock.start()
            result = self._iterate(batch, moves=place == self._accumulate - 1)
            ms = self._clock.stop()
            peak = before + self._meter.stop().peak if measures else None
        self._calls += 1
        return result, ms, peak

    def _iterate(self, batch: Any, *, moves: bool) -> Any:
        with self.model.no_sync() if isinstance(self.model, DistributedDataParallel) and not moves else nullcontext():
            result = self._loss(self.model, batch)
            (result[0] if isinstance(result, tuple) else result).backward()
        if moves:
            if self._clip is not None:
                clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]], self._clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return pytree.tree_map_only(Tensor, Tensor.detach, result)


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
    mine, other = local(mine), local(other)
    if mine.shape != other.shape or mine.dtype != other.dtype:
        return False
    return torch.equal(mine, other) or torch.equal(_bits(mine), _bits(other))


def _bits(x: Tensor) -> Tensor:
    """No number is equal to itself where it is none: training that diverges is still the same training."""
    return x.detach().contiguous().reshape(-1).view(torch.uint8)


def held_bytes(model: nn.Module, optimizer: Optimizer, batch: Any) -> int:
    """Of parameters, buffers, gradients, optimizer state and batch, where the parameters are; storages count once."""
    first, *others = map(local, _held(model, optimizer, batch))
    storages = {x.untyped_storage()._cdata: x.untyped_storage() for x in (first, *others) if x.device == first.device}
    return sum(storage.nbytes() for storage in storages.values())


def _held(model: nn.Module, optimizer: Optimizer, batch: Any) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
    yield from (p.grad for p in model.parameters() if p.grad is not None)
    yield from (x for x in pytree.tree_leaves(batch) if isinstance(x, Tensor))
    for state in optimizer.state.values():
        yield from (x for x in state.values() if isinstance(x, Tensor))
