"""Wherever a value is kept that the step reads: changed between two steps, it is never frozen."""

import array
import copy
import ctypes
import functools
import gc
import multiprocessing
import os
import types
import weakref
from collections import ChainMap, Counter, UserDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.watching.holders import Container
from tests.watching.changing import Config, Model, set_path, train
from tests.zoo import often

BETA = 0.5


SETTINGS: dict[str, Any] = {"loss": {"beta": 0.5}}


class Scale:
    """Keeps its value in the class."""

    beta = 0.5

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.beta


@pytest.mark.parametrize("path", often(["drop.p", "table[1]", "queue[0]", "asked_for"], 1))
def test_other_values_are_captured_anew(path: str) -> None:
    train(set_path(path), sentinel=False)


def test_a_set_and_a_method_and_a_class() -> None:
    def change(k: int, model: Any) -> None:
        if k == 1:
            model.kinds.add("b")
        elif k == 2:
            model.layer.forward = types.MethodType(lambda self, x: F.linear(x, self.weight), model.layer)

    train(change, sentinel=False)


def test_a_value_that_nobody_reads_costs_nothing() -> None:
    step = train(lambda k, model: setattr(model, "unread", k))
    assert len(step._prepared) == 1


def test_names_that_are_made_up_are_all_watched() -> None:
    class MadeUp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)
            self.scale_1 = 0.5

        def forward(self, x: Tensor) -> Any:
            return sum(self.layer(x).mean() * getattr(self, f"scale_{k}") for k in (1,))

    train(lambda k, model: setattr(model, "scale_1", 0.5 / (k + 1)), make=MadeUp, sentinel=False)


def test_names_put_together_in_place() -> None:
    cfg = Config(0.5)

    def loss(model: nn.Module, x: Any) -> Any:
        return model(x) * getattr(cfg, "".join(["be", "ta"]))

    def change(k: int, model: nn.Module) -> None:
        cfg.beta = 1.0 / k

    train(change, loss)


def test_code_without_a_file() -> None:
    """As in `python -c` and in a notebook."""
    scope: dict[str, Any] = {"beta": 0.5}
    exec("def loss(model, x): return model(x) * beta", scope)

    def change(k: int, model: nn.Module) -> None:
        scope["beta"] = 1.0 / k

    train(change, scope["loss"])


def _proxied() -> tuple[Any, Callable[[], float], Callable[[float], None]]:
    held = {"beta": 0.5}
    seen = types.MappingProxyType(held)
    return seen, lambda: seen["beta"], lambda value: held.update(beta=value)


def _boxed(box: Any) -> tuple[Any, Callable[[], float], Callable[[float], None]]:
    return box, lambda: float(box.value), lambda value: setattr(box, "value", value)


def _held(box: Any, key: Any) -> tuple[Any, Callable[[], float], Callable[[float], None]]:
    return box, lambda: float(box[key]), lambda value: box.__setitem__(key, value)


def _context() -> tuple[Any, Callable[[], float], Callable[[float], None]]:
    variable: ContextVar[float] = ContextVar("beta", default=0.5)

    def put(value: float) -> None:
        variable.set(value)

    return variable, variable.get, put


def _weak() -> tuple[Any, Callable[[], float], Callable[[float], None]]:
    config = Config(0.5)
    seen = weakref.ref(config)
    return config, lambda: seen().beta, lambda value: setattr(config, "beta", value)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "make",
    often(
        [
            _proxied,
            _context,
            _weak,
            lambda: _boxed(ctypes.c_double(0.5)),
            lambda: _boxed(multiprocessing.Value("d", 0.5)),
            lambda: _held(array.array("d", [0.5]), 0),
            lambda: _held(UserDict({"beta": 0.5}), "beta"),
            lambda: _held(ChainMap({}, {"beta": 0.5}), "beta"),
            lambda: _held(Counter({"beta": 1}), "beta"),
        ],
        2,
    ),
)
def test_values_behind_objects_of_pythons_own(make: Callable[[], Any]) -> None:
    _kept, get, put = make()
    train(lambda k, model: put(0.5 / k), lambda model, x: model(x) * get(), sentinel=False)


def test_what_was_frozen_for_the_collector_is_watched_too() -> None:
    """Python does not list it, and people freeze everything before they fork workers."""
    cfg = Config(0.5)

    def loss(model: nn.Module, x: Any) -> Any:
        return model(x) * cfg.beta

    def change(k: int, model: nn.Module) -> None:
        cfg.beta = 1.0 / (k + 1)

    gc.freeze()
    try:
        train(change, loss, sentinel=False)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_globals() -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        return model(batch).pow(2).mean() * BETA * SETTINGS["loss"]["beta"]

    def change(k: int, model: nn.Module) -> None:
        globals()["BETA"] = 0.5 / (k + 1)
        SETTINGS["loss"]["beta"] = 0.25 if k == 3 else 0.5

    try:
        train(change, loss, make=lambda: nn.Linear(8, 4), sentinel=False)
    finally:
        globals()["BETA"], SETTINGS["loss"]["beta"] = 0.5, 0.5


def test_defaults_of_a_function() -> None:
    def loss(model: nn.Module, batch: Any, beta: float = 0.5, *, gamma: float = 0.5) -> Any:
        return model(batch).pow(2).mean() * beta * gamma

    def change(k: int, model: nn.Module) -> None:
        if k == 1:
            loss.__defaults__ = (0.25,)
        elif k == 2:
            loss.__kwdefaults__ = {"gamma": 0.125}
        else:
            assert loss.__kwdefaults__ is not None
            loss.__kwdefaults__["gamma"] = 3.0

    train(change, loss, make=lambda: nn.Linear(8, 4), sentinel=False)


def test_partial_arguments_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(model: nn.Module, batch: Any, beta: float) -> Any:
        return model(batch).pow(2).mean() * beta * (2.0 if os.environ.get("LOWTIDE_TEST_DOUBLE") else 1.0)

    loss = functools.partial(scaled, beta=0.5)

    def change(k: int, model: nn.Module) -> None:
        loss.keywords["beta"] = 0.5 / (k + 1)
        if k == 3:
            monkeypatch.setenv("LOWTIDE_TEST_DOUBLE", "1")

    train(change, loss, make=lambda: nn.Linear(8, 4), sentinel=False)


def test_an_attribute_of_a_class() -> None:
    scale = Scale()
    try:
        train(lambda k, m: setattr(Scale, "beta", 0.5 / (k + 1)), lambda m, b: scale(m(b)).mean(), sentinel=False)
    finally:
        Scale.beta = 0.5


def test_what_a_loss_holds() -> None:
    criterion, drop, labels = nn.CrossEntropyLoss(label_smoothing=0.1), nn.Dropout(0.5), torch.tensor([0, 1, 2, 3])

    def loss(model: nn.Module, batch: Any) -> Any:
        return criterion(drop(model(batch)), labels)

    def change(k: int, model: nn.Module) -> None:
        criterion.label_smoothing = 0.1 * k
        drop.train(k != 2)

    train(change, loss, make=lambda: nn.Linear(8, 4), sentinel=False)


def test_objects_keep_their_place() -> None:
    """A copy of the model is another model: its values are not taken for those of the first."""
    model = Model()
    other = copy.deepcopy(model)
    step = lowtide.train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8))
    other.beta = 3.0
    step(torch.randn(4, 8))
    assert len(step._prepared) == 1


def test_what_containers_share_is_not_written_to() -> None:
    one, other = Container([], "one"), Container([], "other")
    one.reads("name")
    assert one.read == other.read == {"contents"}
    assert not one.before
