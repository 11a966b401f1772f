"""Numbers that change between two steps are read anew where they only scale, and captured anew otherwise."""

import logging
import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.watching.changing import set_path, train
from tests.zoo import often


@pytest.mark.parametrize(
    "path",
    often(["beta", "hp['loss']['beta']", "cfg.inner.beta", "_private[1][0]", "cfg.beta", "slotted.beta"], 3),
)
def test_a_number_that_only_scales_is_read_anew_after_its_first_change(path: str) -> None:
    step = train(set_path(path), sentinel=1)
    assert len(step._prepared) == 2, "the first change is captured, the others cost nothing"


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
