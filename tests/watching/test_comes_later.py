"""A value that is not there when a step is captured, in a place where the step looked for it, and comes later."""

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import Tensor, nn

from tests.watching.changing import train

Loss = Callable[[nn.Module, Any], Tensor]


class Layer(nn.Module):
    """Reads what its class says."""

    scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        """A scalar."""
        return self.end(self.layer(x)) * self.scale

    def end(self, x: Tensor) -> Tensor:
        """The last of it."""
        return x.pow(2).mean()


class Inner(Layer):
    """Has nothing of its own yet."""


class Setting:
    """Holds nothing yet."""


SETTING = Setting()
MODULE = types.ModuleType("lowtide_test_settings")


def _sets_a_class(k: int, model: nn.Module) -> None:
    if k == 1:
        Inner.scale = 2.0
    elif k == 2:
        Inner.end = lambda self, x: x.abs().mean()  # type: ignore[method-assign]
    elif "scale" in vars(Inner):
        del Inner.scale


def _sets(place: Any) -> Callable[[int, nn.Module], None]:
    def change(k: int, model: nn.Module) -> None:
        place["LATER" if isinstance(place, dict) else "later"] = 1.0 + k

    return change


def _sets_the_module(k: int, model: nn.Module) -> None:
    MODULE.later = 1.0 + k  # type: ignore[attr-defined]


def _tries_a_global(model: nn.Module, x: Tensor) -> Tensor:
    try:
        scale = LATER  # type: ignore[name-defined]
    except NameError:
        scale = 1.0
    return model(x) * scale  # type: ignore[no-any-return]


def _looks_among_globals(model: nn.Module, x: Tensor) -> Tensor:
    return model(x) * globals().get("LATER", 1.0)  # type: ignore[no-any-return]


def _tries_an_attribute(model: nn.Module, x: Tensor) -> Tensor:
    try:
        scale = SETTING.later  # type: ignore[attr-defined]
    except AttributeError:
        scale = 1.0
    return model(x) * scale  # type: ignore[no-any-return]


def _imports(model: nn.Module, x: Tensor) -> Tensor:
    from lowtide_test_settings import later  # type: ignore[import-not-found]

    return model(x) * later  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    MODULE.later = 1.0  # type: ignore[attr-defined]
    sys.modules["lowtide_test_settings"] = MODULE
    yield
    del sys.modules["lowtide_test_settings"]
    globals().pop("LATER", None)
    vars(SETTING).clear()
    for name in ("scale", "end"):
        if name in vars(Inner):
            delattr(Inner, name)


@pytest.mark.parametrize(
    ("loss", "change"),
    [
        (_tries_a_global, _sets(globals())),
        (_looks_among_globals, _sets(globals())),
        (_tries_an_attribute, _sets(vars(SETTING))),
        (_imports, _sets_the_module),
    ],
)
def test_a_name(loss: Loss, change: Callable[[int, nn.Module], None]) -> None:
    train(change, loss, make=Inner, sentinel=False)


def test_what_a_subclass_comes_to_have_of_its_own() -> None:
    train(_sets_a_class, make=Inner, sentinel=False)
