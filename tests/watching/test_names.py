"""What people put in the place of functions, methods and classes between two steps, torch's own among them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.watching.changing import train

Change = Callable[[int, nn.Module], None]
Loss = Callable[[nn.Module, Any], Tensor]
LABELS = torch.randn(4, 4)


class Scale:
    """Is called."""

    def __call__(self, x: Tensor) -> Tensor:
        return x * 2

    def __getitem__(self, name: str) -> float:
        return 0.5


class Meta(type):
    """Has what its classes have not."""

    beta = 0.5


class Made(metaclass=Meta):
    """Made anew in every step."""

    gamma = 0.5

    def applied(self, x: Tensor) -> Tensor:
        return self.end(x) * self.gamma

    def end(self, x: Tensor) -> Tensor:
        return x


class Reverse(torch.autograd.Function):
    """A gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 0.5


class Doubled(nn.Linear):
    """Another class for a layer that is there."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


class Other(Scale):
    """Another class for an object that is there."""

    def __call__(self, x: Tensor) -> Tensor:
        return x * 3


scale = Scale()
mse_loss, linear, mean, call, tanh = F.mse_loss, F.linear, Tensor.mean, nn.Module.__call__, torch.tanh


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.2))


def mean_of(model: nn.Module, batch: Any) -> Tensor:
    return model(batch).pow(2).mean()  # type: ignore[no-any-return]


def _reversed(model: nn.Module, batch: Any) -> Any:
    return Reverse.apply(model(batch)).mean()  # type: ignore[no-untyped-call]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    owners = (F, torch, Tensor, nn.Module, nn.Linear, Scale, Made, Meta, Reverse)
    kept = [(owner, dict(vars(owner))) for owner in owners]
    scale.__class__ = Scale
    yield
    for owner, held in kept:
        for name, value in list(vars(owner).items()):
            if name not in held:
                delattr(owner, name)
            elif held[name] is not value:
                setattr(owner, name, held[name])


def puts(owner: Any, name: str, value: Any) -> Change:
    """At the third step, where the sentinel does not look by default."""

    def change(k: int, model: nn.Module) -> None:
        if k == 2:
            setattr(owner, name, value)

    return change


@pytest.mark.parametrize(
    ("loss", "change"),
    [
        (lambda m, b: F.mse_loss(m(b), LABELS), puts(F, "mse_loss", lambda x, y, **kw: mse_loss(x, y) * 2)),
        (lambda m, b: torch.tanh(m(b)).mean(), puts(torch, "tanh", lambda x: tanh(x) * 2)),
        (lambda m, b: m(b).mean(), puts(Tensor, "mean", lambda x: mean(x) * 2)),
        (lambda m, b: (m(b) * 0.5).mean(), puts(Tensor, "__mul__", lambda x, y: torch.add(x, y))),
        (mean_of, puts(F, "linear", lambda x, w, b=None: linear(x, w, b) * 2)),
        (mean_of, puts(F, "relu", lambda x, inplace=False: torch.tanh(x))),
        (mean_of, puts(nn.Linear, "forward", lambda layer, x: x @ layer.weight.T)),
        (mean_of, puts(nn.Module, "__call__", lambda m, *xs: call(m, *xs) * 1.5)),
    ],
    ids=["mse_loss", "tanh", "mean", "mul", "linear", "relu", "forward", "call"],
)
def test_torchs_own(loss: Loss, change: Change) -> None:
    """One that calls what was there calls it once: torch names a function by what stands in its place."""
    train(change, loss, make=layers, sentinel=False)


@pytest.mark.parametrize(
    ("loss", "change"),
    [
        (lambda m, b: scale(m(b)).mean(), puts(Scale, "__call__", lambda s, x: x * 3)),
        (lambda m, b: m(b).mean() * scale["beta"], puts(Scale, "__getitem__", lambda s, name: 3.0)),
        (lambda m, b: scale(m(b)).mean(), puts(scale, "__class__", Other)),
        (lambda m, b: m(b).mean() * Made.beta, puts(Meta, "beta", 3.0)),
        (lambda m, b: Made().applied(m(b)).mean(), puts(Made, "gamma", 3.0)),
        (lambda m, b: Made().applied(m(b)).mean(), puts(Made, "end", lambda made, x: x * 3)),
        (_reversed, puts(Reverse, "backward", staticmethod(lambda ctx, g: g * 3))),
    ],
    ids=["call", "getitem", "class", "metaclass", "class-of-new", "method-of-new", "backward"],
)
def test_the_users_own(loss: Loss, change: Change) -> None:
    train(change, loss, make=layers, sentinel=False)


def test_the_class_of_a_module() -> None:
    def change(k: int, model: Any) -> None:
        if k == 2:
            model[0].__class__ = Doubled

    train(change, mean_of, make=layers, sentinel=False)
