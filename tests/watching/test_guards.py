"""What the user's Python changes between two steps is never frozen: read anew, captured anew, or refused."""

import copy
import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils import prune
from torch.overrides import TorchFunctionMode

import lowtide
from lowtide.errors import CaptureError, InputError, LowtideError, StaleCapture
from tests.watching.changing import Model, train
from tests.zoo import often


def test_a_module_that_gets_other_parameters_is_refused_in_one_sentence() -> None:
    def change(k: int, model: nn.Module) -> None:
        if k == 2:
            prune.random_unstructured(model.layer, "weight", 0.5)

    with pytest.raises(CaptureError, match="stores a tensor of the step"):
        train(change)


class _Doubles(TorchFunctionMode):
    """Doubles what relu gives."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is nn.functional.relu else result


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


def test_parameters_in_other_memory_are_read_where_they_are() -> None:
    def change(k: int, model: nn.Module) -> None:
        for p in model.parameters():
            p.data = p.data * 0.5

    step = train(change)
    assert len(step._prepared) == 1


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

    @pytest.mark.parametrize("name", ["saved", "functions", "cache"])
    def test_contexts_around_a_step(self, name: str) -> None:
        """Entered for one of the later steps."""
        made: Any = {
            "saved": lambda: saved_tensors_hooks(lambda x: x.half(), lambda x: x.float()),
            "functions": _Doubles,
            "cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
        }
        usual = torch.autocast("cpu", torch.bfloat16) if name == "cache" else nullcontext()
        torch.manual_seed(0)
        ours = nn.Sequential(*[nn.Linear(8, 8)] * 3, nn.ReLU())
        theirs = copy.deepcopy(ours)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs)]
        batch, loss = torch.randn(4, 8), lambda m, b: m(b).float().pow(2).mean()
        with usual:
            step = lowtide.train_step(ours, optimizers[0], batch, loss, sentinel=False)
        for k in range(4):
            with made[name]() if k == 2 else usual:
                step(batch)
                optimizers[1].zero_grad()
                loss(theirs, batch).backward()  # type: ignore[no-untyped-call]
            optimizers[1].step()
            assert all(map(torch.equal, ours.parameters(), theirs.parameters())), k
        assert len(step._prepared) == 2

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
def test_another_optimizer_setting_is_measured_and_planned_anew() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(64, 8)
    step = lowtide.train_step(model, optimizer, batch, lambda m, b: m(b).mean(), budget="95%", time_limit=2)
    first = step.profile
    optimizer.param_groups[0]["weight_decay"] = 0.1
    step(batch)
    assert step.profile is not first


def test_what_a_step_was_given_stays() -> None:
    model = nn.Linear(8, 4)
    step = lowtide.train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 8), lambda m, b: m(b).mean()
    )
    for name in ("loss", "model", "optimizer", "options"):
        with pytest.raises(InputError, match=rf"step\.{name} cannot be set.*make a new one with train_step"):
            setattr(step, name, getattr(step, name))


def test_a_wrong_option_is_one_sentence() -> None:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for options in ({"side_effects": "maybe"}, {"sentinel": -1}, {"sentinel": "often"}):
        with pytest.raises(LowtideError, match="must be"):
            lowtide.train_step(model, optimizer, torch.randn(4, 8), lambda m, b: m(b).mean(), **options)
