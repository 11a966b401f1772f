"""Trains two copies of a model, one eagerly, and says where they first differ: the judge of every equality test."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.tracing.loss import model_loss

MakeOptimizer = Callable[[nn.Module], Optimizer]
LossFunction = Callable[[nn.Module, Any], Any]


@dataclass
class Trained:
    """A model with its optimizer, and the loss of the newest step."""

    model: nn.Module
    optimizer: Optimizer
    loss: Any = None

    def copy(self) -> "Trained":
        """An independent copy, optimizer state included."""
        model, optimizer = copy.deepcopy((self.model, self.optimizer))
        return Trained(model, optimizer)


def eager_step(trained: Trained, batch: Any, loss: LossFunction | None, seed: int) -> Tensor:
    """One untouched eager iteration; returns the generator's state after it."""
    torch.manual_seed(seed)
    trained.optimizer.zero_grad(set_to_none=True)
    trained.loss = (loss or model_loss)(trained.model, batch)
    first = trained.loss[0] if isinstance(trained.loss, tuple) else trained.loss
    first.backward()
    trained.optimizer.step()
    return torch.get_rng_state()


def differences(ours: Trained, theirs: Trained) -> Iterator[str]:
    """Names of everything that is not torch.equal: loss, gradients, parameters, buffers, optimizer state."""
    for mine, other in zip(pytree.tree_leaves(ours.loss), pytree.tree_leaves(theirs.loss), strict=True):
        if not torch.equal(mine, other.detach()):
            yield "loss"
    parameters = list(zip(_parameters(ours), _parameters(theirs), strict=True))
    for (name, mine), (_, other) in parameters:
        if (mine.grad is None) != (other.grad is None):
            yield f"{name}.grad is there on one side only"
        elif mine.grad is not None and other.grad is not None and not torch.equal(mine.grad, other.grad):
            yield f"{name}.grad"
        if not torch.equal(mine, other):
            yield name
        yield from _state_differences(name, ours.optimizer.state.get(mine, {}), theirs.optimizer.state.get(other, {}))
    for (name, mine), (_, other) in zip(ours.model.named_buffers(), theirs.model.named_buffers(), strict=True):
        if not torch.equal(mine, other):
            yield name


def _parameters(trained: Trained) -> Sequence[tuple[str, Tensor]]:
    held = [p for group in trained.optimizer.param_groups for p in group["params"]]
    return [*trained.model.named_parameters(), *((f"optimizer[{k}]", p) for k, p in enumerate(held))]


def _state_differences(name: str, mine: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    if mine.keys() != other.keys():
        yield f"state of {name}: {sorted(mine)} and {sorted(other)}"
        return
    for key, value in mine.items():
        same = torch.equal(value, other[key]) if isinstance(value, Tensor) else value == other[key]
        if not same:
            yield f"state of {name}: {key}"
