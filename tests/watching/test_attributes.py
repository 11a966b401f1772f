"""Values beside what an object is, and values that are read without their names: changed, they are never frozen."""

import copy
import dataclasses
import enum
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.watching.changing import train

Loss = Callable[[nn.Module, Any], Tensor]


def small() -> nn.Module:
    return nn.Linear(8, 4)


class Kind(enum.Enum):
    """Its members may hold something too."""

    ONE = 1


class Number(float):
    """A number with something beside it."""


class Text(str):
    """A string with something beside it."""


class Items(list[int]):
    """A list with something beside it."""


class Table(dict[str, int]):
    """A dict with something beside it."""


def function(x: Tensor) -> Tensor:
    return x * getattr(function, "beta", 1.0)


@pytest.mark.parametrize(
    "holder",
    [Kind.ONE, Number(1.0), Text("x"), Items([1]), Table(a=1), function, torch.ones(1)],
    ids=["enum", "float", "str", "list", "dict", "function", "tensor"],
)
def test_what_hangs_on_an_object(holder: Any) -> None:
    def change(k: int, model: nn.Module) -> None:
        holder.beta = 1.0 + k

    holder.beta = 1.0
    loss: Loss = lambda m, b: function(m(b)).mean() * holder.beta  # noqa: E731
    train(change, loss, make=small, sentinel=False)
    if holder is function:
        del function.beta


def test_what_hangs_on_a_parameter() -> None:
    def make() -> nn.Module:
        model = small()
        for p in model.parameters():
            p.coefficient = 0.5  # type: ignore[attr-defined]
        return model

    def loss(model: nn.Module, batch: Any) -> Any:
        of = [p for p in model.parameters() if isinstance(p, nn.Parameter)]
        return model(batch).mean() + sum(p.coefficient * p.pow(2).sum() for p in of)  # type: ignore[attr-defined]

    def change(k: int, model: Any) -> None:
        model.weight.coefficient = 0.5 * k

    torch.manual_seed(0)
    ours, theirs = make(), make()
    theirs.load_state_dict(ours.state_dict())
    from lowtide import train_step  # a copy of a parameter has no attributes, so `train` cannot make the second

    first, second = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs))
    step = train_step(ours, first, torch.ones(4, 8), loss, sentinel=False)
    for k in range(4):
        for model in (ours, theirs):
            change(k, model)
        step(torch.ones(4, 8))
        second.zero_grad()
        loss(theirs, torch.ones(4, 8)).backward()
        second.step()
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)), k


@dataclasses.dataclass
class Config:
    """Two values."""

    beta: float = 0.5
    gamma: float = 1.0

    def both(self) -> float:
        return self.beta * self.gamma


CONFIG = Config()
ARRAY = np.array([CONFIG], dtype=object)


def _by_word(model: nn.Module, batch: Any) -> Any:
    match CONFIG:
        case Config(gamma=1.0, beta=value):
            return model(batch).mean() * value


def _by_place(model: nn.Module, batch: Any) -> Any:
    match CONFIG:
        case Config(value):
            return model(batch).mean() * value


@pytest.mark.parametrize(
    "loss",
    [
        _by_word,
        _by_place,
        lambda m, b: m(b).mean() * dataclasses.astuple(CONFIG)[0],
        lambda m, b: m(b).mean() * sum(dataclasses.asdict(CONFIG).values()),
        lambda m, b: m(b).mean() * dataclasses.replace(CONFIG, gamma=2.0).both(),
        lambda m, b: m(b).mean() * copy.copy(CONFIG).both(),
        lambda m, b: m(b).mean() * ARRAY[0].beta,
    ],
    ids=["match-word", "match-place", "astuple", "asdict", "replace", "copy", "array"],
)
def test_fields_that_are_not_named(loss: Loss) -> None:
    def change(k: int, model: nn.Module) -> None:
        CONFIG.beta = 0.5 * k

    try:
        train(change, loss, make=small, sentinel=False)
    finally:
        CONFIG.beta = 0.5


def test_an_object_in_the_batch() -> None:
    settings = types.SimpleNamespace(beta=0.5)

    def run(model: nn.Module, batch: Any) -> Any:
        return model(batch["x"]).mean() * batch["settings"].beta

    ours, theirs = small(), small()
    theirs.load_state_dict(ours.state_dict())
    first, second = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs))
    from lowtide import train_step

    batch = {"x": torch.ones(4, 8), "settings": settings}
    step = train_step(ours, first, batch, run, sentinel=False)
    for k in range(3):
        settings.beta = 0.5 + k
        step(batch)
        second.zero_grad()
        run(theirs, batch).backward()
        second.step()
        assert torch.equal(ours.weight, theirs.weight), k  # type: ignore[arg-type]


def test_the_order_of_a_table() -> None:
    def change(k: int, model: Any) -> None:
        if k == 2:
            model._forward_hooks.move_to_end(next(iter(model._forward_hooks)))

    def make() -> nn.Module:
        model = small()
        model.register_forward_hook(lambda m, xs, out: out * 2)
        model.register_forward_hook(lambda m, xs, out: out + 1)
        return model

    train(change, lambda m, b: m(b).pow(2).mean(), make=make, sentinel=False)


def test_the_sign_of_zero() -> None:
    settings = types.SimpleNamespace(zero=0.0)
    train(
        lambda k, m: setattr(settings, "zero", -0.0 if k > 1 else 0.0),
        lambda m, b: m(b).mean() * (2.0 if str(settings.zero)[0] == "-" else 1.0),
        make=small,
        sentinel=False,
    )


def test_a_number_that_is_asked_whether_it_is_whole() -> None:
    settings = types.SimpleNamespace(beta=0.5)
    train(
        lambda k, m: setattr(settings, "beta", (0.5, 0.25, 0.125, 1.0)[k]),
        lambda m, b: m(b).mean() * (3.0 if settings.beta.is_integer() else settings.beta),
        make=small,
        sentinel=False,
    )
