"""What the user's Python changes between two steps is never frozen: read anew, captured anew, or refused."""

import array
import copy
import ctypes
import functools
import gc
import logging
import math
import multiprocessing
import os
import types
import weakref
from collections import ChainMap, Counter, UserDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

import lowtide
from lowtide.errors import CaptureError, LowtideError, StaleCapture
from tests.equality import Trained, differences, eager_step
from tests.zoo import often

BETA = 0.5
SETTINGS: dict[str, Any] = {"loss": {"beta": 0.5}}


class Slotted:
    """Keeps its value in a slot."""

    __slots__ = ("beta",)

    def __init__(self) -> None:
        self.beta = 0.5


class Scale:
    """Keeps its value in the class."""

    beta = 0.5

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.beta


@dataclass
class Config:
    """Nested configuration."""

    beta: float
    inner: Any = None


class Model(nn.Module):
    """Reads everything that a test may want to change."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.drop = nn.Dropout(0.3)
        self.beta = 0.5
        self._private = [1.0, [0.5]]
        self.hp = {"loss": {"beta": 0.5}}
        self.cfg = Config(0.5, types.SimpleNamespace(beta=0.5))
        self.queue = deque([0.5])
        self.kinds = {"a"}
        self.table = np.array([0.5, 0.25])
        self.slotted = Slotted()
        self.unread = 0
        self.asked_for: float

    def forward(self, x: Tensor) -> Any:
        """A scalar."""
        h = self.drop(self.layer(x)) * self.beta * self._private[1][0]  # type: ignore[index]
        h = h * self.hp["loss"]["beta"] * self.cfg.beta * self.cfg.inner.beta * self.queue[0] * self.slotted.beta
        h = h + torch.tensor(self.table).sum()
        if "b" in self.kinds:
            h = h * 3
        return h.pow(2).mean() * getattr(self, "asked_for", 1.0)


def train(
    change: Callable[[int, nn.Module], None],
    loss: Callable[[nn.Module, Any], Any] | None = None,
    *,
    make: Callable[[], nn.Module] = Model,
    steps: int = 4,
    before: Callable[[], None] = lambda: None,
    **options: Any,
) -> lowtide.TrainStep:
    """Train beside eager; before each step but the first `change(k, model)` for both models."""
    before()
    torch.manual_seed(0)
    model = make()
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = ours.copy()
    batch = torch.randn(4, 8)
    step = lowtide.train_step(ours.model, ours.optimizer, batch, loss, **options)
    for k in range(steps):
        if k:
            change(k, ours.model)
            change(k, theirs.model)
        torch.manual_seed(k)
        ours.loss = step(batch)
        eager_step(theirs, batch, loss, k)
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == [], f"step {k}"
    return step


def _set(path: str) -> Callable[[int, nn.Module], None]:
    def change(k: int, model: nn.Module) -> None:
        exec(f"m.{path} = value", {"m": model, "value": 0.5 / (k + 1)})

    return change


@pytest.mark.parametrize(
    "path",
    often(["beta", "hp['loss']['beta']", "cfg.inner.beta", "_private[1][0]", "cfg.beta", "slotted.beta"], 3),
)
def test_a_number_that_only_scales_is_read_anew_after_its_first_change(path: str) -> None:
    step = train(_set(path), sentinel=1)
    assert len(step._prepared) == 2, "the first change is captured, the others cost nothing"


@pytest.mark.parametrize("path", often(["table[1]", "drop.p", "queue[0]", "asked_for"], 1))
def test_other_values_are_captured_anew(path: str) -> None:
    train(_set(path), sentinel=False)


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
        3,
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


def test_a_module_that_gets_other_parameters_is_refused_in_one_sentence() -> None:
    def change(k: int, model: nn.Module) -> None:
        if k == 2:
            prune.random_unstructured(model.layer, "weight", 0.5)

    with pytest.raises(CaptureError, match="stores a tensor of the step"):
        train(change)


class Carries(nn.Module):
    """Hands its state on from step to step, and lets two buffers change places."""

    state: Tensor
    one: Tensor
    other: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        for name, value in (("state", 0.0), ("one", 1.0), ("other", 2.0)):
            self.register_buffer(name, torch.full((4, 8), value))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.cell(x * self.one, self.state)
        self.state = h.detach()
        self.one, self.other = self.other, self.one
        return h.pow(2).mean()


def test_buffers_that_are_replaced_in_forward() -> None:
    """Backward still reads the state that was there before."""
    train(lambda k, model: None, make=Carries)


def _closure() -> tuple[Callable[[nn.Module, Any], Any], Callable[[int, nn.Module], None]]:
    beta = 0.5

    def loss(model: nn.Module, batch: Any) -> Any:
        return model(batch).pow(2).mean() * beta + (1 - beta) * model(batch).mean()

    def change(k: int, model: nn.Module) -> None:
        nonlocal beta
        beta = 0.5 / (k + 1)

    return loss, change


def test_a_variable_around_the_loss_is_lifted() -> None:
    loss, change = _closure()
    step = train(change, loss, make=lambda: nn.Linear(8, 4), sentinel=1)
    assert len(step._prepared) == 2


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


def test_parameters_in_other_memory_are_read_where_they_are() -> None:
    def change(k: int, model: nn.Module) -> None:
        for p in model.parameters():
            p.data = p.data * 0.5

    step = train(change)
    assert len(step._prepared) == 1


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


def test_numbers_from_a_scheduler_are_told_by_name(caplog: pytest.LogCaptureFixture) -> None:
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(other, 0.9)
    moved = []

    def change(k: int, model: nn.Module) -> None:
        if k not in moved:  # once for both models
            moved.append(k)
            other.step()
            scheduler.step()

    with caplog.at_level(logging.WARNING):
        train(change, lambda m, b: m(b).pow(2).mean() * scheduler.get_last_lr()[0], make=lambda: nn.Linear(8, 4))
    assert "_last_lr has changed from [1.0] to [0.9]" in caplog.text
    assert "pass it in the batch as a tensor" in caplog.text


def test_a_number_that_is_compared_is_not_lifted() -> None:
    settings = types.SimpleNamespace(beta=0.9)

    def loss(model: nn.Module, batch: Any) -> Any:
        value = model(batch)
        return value.pow(2).mean() * settings.beta if settings.beta < 1 else value.abs().mean()

    step = train(
        lambda k, m: setattr(settings, "beta", 0.9 + 0.07 * k), loss, make=lambda: nn.Linear(8, 4), sentinel=False
    )
    assert len(step._prepared) == 4


@pytest.mark.slow
def test_a_number_that_goes_through_math_is_not_lifted() -> None:
    settings = types.SimpleNamespace(t=0.5)
    train(
        lambda k, m: setattr(settings, "t", 0.5 + k),
        lambda m, b: m(b).pow(2).mean() * math.exp(-settings.t),
        make=lambda: nn.Linear(8, 4),
        sentinel=False,
    )


class TestTorchItself:
    @pytest.fixture(autouse=True)
    def as_before(self) -> Iterator[None]:
        flash, threads = torch._C._get_flash_sdp_enabled(), torch.get_num_threads()
        yield
        torch.backends.cuda.enable_flash_sdp(flash)
        torch.set_num_threads(threads)

    def test_kernels_are_switched(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            step = train(lambda k, m: torch.backends.cuda.enable_flash_sdp(k != 2))
        assert "scaled_dot_product_attention has changed" in caplog.text
        assert len(step._prepared) == 2

    def test_the_precision_of_float32_is_asked_in_the_new_way(self) -> None:
        """torch raises where the old question is asked after a setting of the new kind."""
        before = torch.backends.fp32_precision  # type: ignore[attr-defined]
        try:
            torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
            train(lambda k, m: None, steps=2)
        finally:
            torch.backends.fp32_precision = before  # type: ignore[attr-defined]

    def test_a_hook_of_all_modules(self) -> None:
        handles: list[Any] = []

        def change(k: int, model: nn.Module) -> None:
            if k == 2 and not handles:
                handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 2))

        try:
            train(change, make=lambda: nn.Sequential(nn.Linear(8, 4), nn.Flatten(0), nn.Linear(16, 1)))
        finally:
            for handle in handles:
                handle.remove()

    def test_a_gradient_hook_that_comes_later_is_refused(self) -> None:
        def change(k: int, model: nn.Module) -> None:
            if k == 2:
                next(model.parameters()).register_hook(lambda g: g * 2)

        with pytest.raises(CaptureError, match="has a hook on its gradient"):
            train(change)

    @pytest.mark.parametrize(
        ("name", "value"), often([("weight_decay", 0.1), ("nesterov", True), ("momentum", 0.9)], 1)
    )
    def test_settings_of_the_optimizer_that_take_other_bytes(
        self, name: str, value: object, caplog: pytest.LogCaptureFixture
    ) -> None:
        model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9 if name == "nesterov" else 0.0)
        step = lowtide.train_step(model, optimizer, torch.randn(4, 8), lambda m, b: m(b).mean())
        step(torch.randn(4, 8))
        optimizer.param_groups[0][name] = value
        with caplog.at_level(logging.WARNING):
            step(torch.randn(4, 8))
        assert f"{name} of the optimizer's group 0 has changed" in caplog.text


def test_a_captured_graph_says_that_it_is_stale() -> None:
    model = Model()
    graph = lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8))
    graph(torch.randn(4, 8))
    model.beta = 0.25
    with pytest.raises(StaleCapture, match=r"model.beta has changed from 0.5 to 0.25 since the step was captured"):
        graph(torch.randn(4, 8))


@pytest.mark.slow
def test_one_plan_serves_other_numbers() -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch), torch.tensor([0, 1, 2, 3]), label_smoothing=settings.smoothing)

    settings = types.SimpleNamespace(smoothing=0.1)
    make = lambda: nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(6)))  # noqa: E731
    step = train(
        lambda k, m: setattr(settings, "smoothing", 0.1 + 0.1 * k), loss, make=make, budget="90%", time_limit=2, steps=3
    )
    assert {case.profile for case in step._prepared} == {step.profile}, "measured once"
    assert {str(case.steps["only"].plan.order) for case in step._prepared} == {str(step.plan.order)}  # type: ignore[index,union-attr]


@pytest.mark.slow
def test_another_optimizer_setting_is_measured_and_planned_anew() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(64, 8)
    step = lowtide.train_step(model, optimizer, batch, lambda m, b: m(b).mean(), budget="95%", time_limit=2)
    first = step.profile
    optimizer.param_groups[0]["weight_decay"] = 0.1
    step(batch)
    assert step.profile is not first


def test_objects_keep_their_place() -> None:
    """A copy of the model is another model: its values are not taken for those of the first."""
    model = Model()
    other = copy.deepcopy(model)
    step = lowtide.train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8))
    other.beta = 3.0
    step(torch.randn(4, 8))
    assert len(step._prepared) == 1


def test_a_wrong_option_is_one_sentence() -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for options in ({"side_effects": "maybe"}, {"sentinel": -1}, {"sentinel": "often"}):
        with pytest.raises(LowtideError, match="must be"):
            lowtide.train_step(model, optimizer, torch.randn(4, 8), lambda m, b: m(b).mean(), **options)
