"""A model that reads everything that may change between two steps, and training beside eager while it does."""

import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import lowtide
from tests.equality import Trained, differences, eager_step


class Slotted:
    """Keeps its value in a slot."""

    __slots__ = ("beta",)

    def __init__(self) -> None:
        self.beta = 0.5


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


def set_path(path: str) -> Callable[[int, nn.Module], None]:
    def change(k: int, model: nn.Module) -> None:
        exec(f"m.{path} = value", {"m": model, "value": 0.5 / (k + 1)})

    return change
