"""How models are put together: residuals, shared and tied weights, parametrizations, buffers, side effects."""

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.fuzz.kinds import KINDS, Adapt, Function, Kind, Pick, Shape, function, layer

_INNER = (
    "linear",
    "relu",
    "gelu",
    "layer_norm",
    "dropout",
    "tanh",
    "conv1d",
    "conv2d",
    "batch_norm1d",
    "batch_norm2d",
    "permute",
    "scan",
    "slice_assignment",
    "less_std",
    "roll",
)


def _inner(shape: Shape, pick: Pick, number: int = 2) -> nn.Sequential:
    """A few layers that end in the shape in which they start."""
    parts: list[nn.Module] = []
    x = torch.randn(shape)
    for place in range(number):
        fitting = [name for name in _INNER if x.dim() in KINDS[name].ranks]
        part = KINDS[pick(f"inner{place}", *fitting)].build(tuple(x.shape), pick)
        with torch.no_grad():
            x = part(x)
        parts.append(part)
    return nn.Sequential(*parts, Adapt(shape[1:]))


class Residual(nn.Module):
    """x and a branch: added, in place or not, or joined."""

    def __init__(self, inner: nn.Module, how: str) -> None:
        super().__init__()
        self.inner, self.how = inner, how

    def forward(self, x: Tensor) -> Tensor:
        """The sum, or both."""
        y = self.inner(x)
        if self.how == "in_place":
            y += x
            return y  # type: ignore[no-any-return]
        if self.how == "checkpoint":
            return x + checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]
        return torch.cat([x, y], 1) if self.how == "cat" else x + y


@layer(weight=40)
def residual(shape: Shape, pick: Pick) -> nn.Module:
    return Residual(_inner(shape, pick), pick("how", "add", "add", "in_place", "cat"))


@layer(weight=3)
def checkpointed(shape: Shape, pick: Pick) -> nn.Module:
    return Residual(_inner(shape, pick), "checkpoint")


class Twice(nn.Module):
    """One module, called twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """inner(inner(x))"""
        return self.inner(self.inner(x).tanh())  # type: ignore[no-any-return]


@layer(weight=15)
def used_twice(shape: Shape, pick: Pick) -> nn.Module:
    return Twice(_inner(shape, pick))


@layer(weight=15)
def two_names(shape: Shape, pick: Pick) -> nn.Module:
    inner = _inner(shape, pick)
    return nn.Sequential(inner, nn.ReLU(), inner)


class Tied(nn.Module):
    """Two linear layers with one weight: the same parameter, its transpose, or an alias of its bytes."""

    def __init__(self, features: int, how: str) -> None:
        super().__init__()
        self.first, self.second, self.how = nn.Linear(features, features), nn.Linear(features, features), how
        if how == "parameter":
            self.second.weight = self.first.weight
        elif how == "shared_storage":
            self.second.weight = nn.Parameter(self.first.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Through both."""
        if self.how == "transposed":
            return F.linear(self.first(x).relu(), self.first.weight.t(), self.second.bias)
        return self.second(self.first(x).relu())  # type: ignore[no-any-return]


@layer(weight=20)
def tied(shape: Shape, pick: Pick) -> nn.Module:
    return Tied(shape[-1], pick("how", "parameter", "parameter", "transposed", "transposed", "shared_storage"))


@layer()
def parametrized(shape: Shape, pick: Pick) -> nn.Module:
    inner: nn.Module = nn.Linear(shape[-1], 6)
    how = pick("how", "spectral", "weight", "orthogonal", "old_weight", "old_spectral")
    if how == "old_weight":
        return torch.nn.utils.weight_norm(inner)
    if how == "old_spectral":
        return torch.nn.utils.spectral_norm(inner)
    make: Any = {
        "spectral": parametrizations.spectral_norm,
        "weight": parametrizations.weight_norm,
        "orthogonal": parametrizations.orthogonal,
    }[how]
    return make(inner)  # type: ignore[no-any-return]


class Running(nn.Module):
    """Buffers that forward updates, in one of the ways in which people do it."""

    mean: Tensor
    seen: Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("mean", torch.zeros(2, 3).t() if how == "transposed" else torch.zeros(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        """x less its running mean."""
        now = x.detach().mean().to(self.mean.dtype)
        if self.how == "in_place":
            self.mean.mul_(0.9).add_(now, alpha=0.1)
            self.seen += 1
        elif self.how == "copy":
            self.mean.copy_(0.9 * self.mean + 0.1 * now)
            self.seen.add_(1)
        elif self.how == "transposed":
            self.mean.mul_(0.9).add_(now, alpha=0.1).clamp_(-1, 1)
            return x - self.mean.sum().to(x.dtype)
        elif self.how == "no_grad":
            with torch.no_grad():
                self.mean.lerp_(now, 0.1)
        else:
            self.mean = 0.9 * self.mean + 0.1 * now
            self.seen = self.seen + 1
        return x - self.mean.to(x.dtype)


@layer(weight=20)
def running_mean(shape: Shape, pick: Pick) -> nn.Module:
    return Running(pick("how", "in_place", "copy", "no_grad", "assigned", "transposed"))


class Extra(nn.Module):
    """Parameters beside the modules: used, unused, frozen, scalar or empty."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        size = {"scalar": (), "empty": (0,)}.get(how, (1,))
        self.scale = nn.Parameter(torch.ones(size), requires_grad=how != "frozen")

    def forward(self, x: Tensor) -> Tensor:
        """Scaled by the parameter where it is used."""
        if self.how == "unused":
            return x
        return x + self.scale.sum() if self.how == "empty" else x * self.scale


@layer(weight=15)
def extra_parameter(shape: Shape, pick: Pick) -> nn.Module:
    return Extra(pick("how", "scalar", "used", "unused", "frozen", "empty"))


class Effect(nn.Module):
    """Python state that forward changes; `calls` must be as after eager training."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.calls: Any = 0 if how.startswith("count") else []

    def forward(self, x: Tensor) -> Tensor:
        """x, perhaps scaled by what was counted."""
        if self.how.startswith("count"):
            self.calls += 1
            return x * (1.0 / self.calls) if self.how == "count_used" else x
        self.calls.append(x.shape[0] if self.how == "append" else x.detach())
        return x


@layer(weight=6)
def side_effect(shape: Shape, pick: Pick) -> nn.Module:
    return Effect(pick("how", "count", "count_used", "append", "append_tensor"))


@function(weight=3)
def python_random(shape: Shape, pick: Pick) -> Function:
    return lambda x: x * (1.0 + random.random())


class _Clipped(torch.autograd.Function):
    """The identity, with a clipped gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0].clamp(-0.01, 0.01) * (x.abs() < 2)  # type: ignore[no-any-return]


@function()
def autograd_function(shape: Shape, pick: Pick) -> Function:
    return lambda x: _Clipped.apply(x)  # type: ignore[no-untyped-call]


@function(weight=5)
def looks_at_a_value(shape: Shape, pick: Pick) -> Function:
    return lambda x: x.relu() if x.sum().item() > 0 else x.tanh()


@function()
def no_grad_branch(shape: Shape, pick: Pick) -> Function:
    def call(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x.tanh()
        return x * y

    return call


@function(weight=5)
def inner_gradient(shape: Shape, pick: Pick) -> Function:
    def call(x: Tensor) -> Tensor:
        z = x if x.requires_grad else x.detach().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(z.tanh().sum(), z, create_graph=True)
        return x + slope

    return call


def kinds() -> list[Kind]:
    """All of them, in the order in which they were registered."""
    return list(KINDS.values())
