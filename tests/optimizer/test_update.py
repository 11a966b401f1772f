"""Whose update it is: torch's own, also through subclasses that leave it alone, or somebody else's."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer, RMSprop, Rprop

import lowtide
from lowtide.optimizer.torch_optimizers import torch_class
from lowtide.optimizer.update import describe, expected_state, is_separable
from tests.tracing.test_equal import assert_equal_training
from tests.zoo import ZOO


class Named(AdamW):
    """Other defaults and a method more."""

    def __init__(self, params: Any, name: str = "mine", lr: float = 0.05) -> None:
        super().__init__(params, lr=lr, betas=(0.8, 0.9))
        self.name = name

    def rate(self) -> float:
        """Of the first group."""
        return float(self.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """With the name."""
        return {**super().state_dict(), "name": self.name}


class Counting:
    """A mixin that has nothing to do with the update."""

    calls = 0


class Mixed(Counting, RMSprop):
    """Torch's, with a mixin."""


class Early(Rprop):
    """As a class looks where its first instance was made before any of its base."""


Early.step = Optimizer.profile_hook_step(Rprop.step)  # type: ignore[method-assign]


class Clipping(SGD):
    """Looks at all gradients before it steps."""

    def step(self, closure: Any = None) -> Any:
        """Clip, then step."""
        nn.utils.clip_grad_norm_([p for group in self.param_groups for p in group["params"]], 1.0)
        return super().step(closure)


class Starting(AdamW):
    """State of its own."""

    def _init_group(self, *args: Any, **kwargs: Any) -> Any:
        return super()._init_group(*args, **kwargs)  # type: ignore[no-untyped-call]


class Watching(Optimizer):
    """A mixin that changes what all optimizers do."""

    def profile_hook_step(self, func: Any) -> Any:  # type: ignore[override]
        """Not torch's. A function of its own: torch notes on what it gets that it is hooked."""
        return lambda *args, **kwargs: func(*args, **kwargs)


class Watched(SGD, Watching):
    """Torch's step, but not torch's way to it."""


@pytest.mark.parametrize(("cls", "base"), [(Named, AdamW), (Mixed, RMSprop), (Early, Rprop), (SGD, SGD)])
def test_a_subclass_that_leaves_the_update_alone_is_torchs(cls: type[Optimizer], base: type[Optimizer]) -> None:
    model = nn.Linear(3, 2)
    optimizer, plain = cls(model.parameters()), base(model.parameters())  # type: ignore[call-arg]
    assert torch_class(optimizer) is base
    assert is_separable(optimizer)
    assert expected_state(optimizer, model.weight) == expected_state(plain, model.weight)
    assert describe(optimizer) == describe(plain).replace(base.__name__, cls.__name__)


@pytest.mark.parametrize("cls", [Clipping, Starting, Watched])
def test_a_subclass_that_changes_the_update_is_not(cls: type[Optimizer]) -> None:
    model = nn.Linear(3, 2)
    optimizer = cls(model.parameters())  # type: ignore[call-arg]
    assert torch_class(optimizer) is None
    assert not is_separable(optimizer)
    assert expected_state(optimizer, model.weight) == {}


def test_they_train_as_eager_does_one_parameter_at_a_time() -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, Named(case.model.parameters()), case.batch, case.loss)
    assert sum(op.is_update for op in graph.ops) == len(list(case.model.parameters()))
    assert_equal_training(case, lambda model: Named(model.parameters()))
    assert_equal_training(ZOO["mlp"](), lambda model: Clipping(model.parameters()))


def test_a_step_that_somebody_has_put_something_around() -> None:
    optimizer = SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert is_separable(optimizer), "a scheduler only looks"
    before = optimizer.step
    other = SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    other.step = other.step  # type: ignore[method-assign]
    assert is_separable(other), "its own"

    @functools.wraps(before)
    def step(*args: Any) -> Any:
        return before(*args)

    optimizer.step = step  # type: ignore[assignment, method-assign]
    assert not is_separable(optimizer)
