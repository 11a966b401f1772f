"""Thin wrappers of other libraries are looked through; what changes the update is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.errors import CaptureError
from lowtide.tracing.wrappers import unwrapped


class AcceleratedOptimizer(torch.optim.Optimizer):
    """As accelerate's: an optimizer around another, without a base state of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: object = None, every: int = 1) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self.gradient_state = SimpleNamespace(num_steps=every)

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.optimizer.param_groups


class LightningOptimizer:
    """As Lightning's: takes on the class and the attributes of what it wraps."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: object = None) -> None:
        self.__dict__ = {k: v for k, v in optimizer.__dict__.items() if k != "step"}
        self.__class__ = type("LightningSGD", (type(self), type(optimizer)), {})
        self._optimizer = optimizer
        self._strategy = SimpleNamespace(precision_plugin=SimpleNamespace(scaler=scaler))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("wrap", [AcceleratedOptimizer, LightningOptimizer])
def test_what_is_inside_trains(wrap: Any) -> None:
    model = nn.Linear(4, 1)
    inside = sgd(model)
    assert unwrapped(wrap(inside)) is inside
    assert unwrapped(wrap(AcceleratedOptimizer(inside))) is inside
    step = lowtide.train_step(model, wrap(inside), torch.ones(2, 4), lambda model, batch: model(batch).sum())
    assert step.optimizer is inside
    before = model.weight.detach().clone()
    step(torch.ones(2, 4))
    assert torch.equal(model.weight, before - 0.1 * 2)


def test_what_changes_the_update_is_refused() -> None:
    model = nn.Linear(4, 1)
    for wrapped in (AcceleratedOptimizer(sgd(model), scaler=object()), LightningOptimizer(sgd(model), scaler=object())):
        with pytest.raises(CaptureError, match=r"scales the loss .*train in bfloat16"):
            unwrapped(wrapped)
    with pytest.raises(CaptureError, match="at every 4th call: give accumulate=4"):
        unwrapped(AcceleratedOptimizer(sgd(model), every=4))
    other = AcceleratedOptimizer(sgd(model))
    other.__class__ = type("AcceleratedOptimizer", (AcceleratedOptimizer,), {"param_groups": [{"params": []}]})
    with pytest.raises(CaptureError, match="other parameters"):
        unwrapped(other)
