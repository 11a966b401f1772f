"""`x.data = value` in a step, and backward calls of a loss function's own: as in eager, or refused."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import lowtide
from lowtide.errors import CaptureError
from tests.watching.changing import train


class Momentum(nn.Module):
    """An encoder that follows another one, as in MoCo."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        """A scalar."""
        for mine, follows in zip(self.key.parameters(), self.query.parameters(), strict=True):
            mine.data = mine.data * 0.9 + follows.data * 0.1
        assert self.norm.running_mean is not None
        self.norm.running_mean.data = self.norm.running_mean * 0.5
        return mse_loss(self.norm(self.query(x)), self.key(x))


class Clipped(nn.Module):
    """Sets its weights between two forwards: backward of the first reads them as they were."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        """A scalar."""
        first = mse_loss(self.layers(x), x)
        for p in self.parameters():
            p.data = p.data.clamp(-0.2, 0.2) * 1.5
        return first + mse_loss(self.layers(x), x)


@pytest.mark.parametrize("make", [Momentum, Clipped])
@pytest.mark.parametrize("sentinel", [True, False])
def test_as_in_eager(make: Callable[[], nn.Module], sentinel: bool) -> None:
    train(lambda k, model: None, make=make, sentinel=sentinel)


def test_a_teacher_outside_of_the_model() -> None:
    """Each side has a teacher of its own: the first call of a step is eager's, which the sentinel undoes."""
    models = [nn.Linear(8, 8) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    teachers = [nn.Linear(8, 8) for _ in range(2)]
    teachers[1].load_state_dict(teachers[0].state_dict())

    def loss_by(teacher: nn.Module) -> Callable[[nn.Module, Tensor], Tensor]:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            for mine, follows in zip(teacher.parameters(), model.parameters(), strict=True):
                mine.data = mine.data * 0.9 + follows.data * 0.1
            return mse_loss(model(x), teacher(x).detach())

        return loss

    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
    batch = torch.randn(4, 8)
    step = lowtide.train_step(models[0], optimizers[0], batch, loss_by(teachers[0]))
    for _ in range(5):
        step(batch)
        loss_by(teachers[1])(models[1], batch).backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        for a, b in (models, teachers):
            assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def _shares(model: Any, x: Tensor) -> Tensor:
    model[2].weight.data = model[0].weight.data
    return mse_loss(model(x), x)


def _another_shape(model: Any, x: Tensor) -> Tensor:
    model[0].bias.data = x.mean()
    return mse_loss(model(x), x)


def _backward_inside(model: nn.Module, x: Tensor) -> Tensor:
    added = torch.zeros_like(x, requires_grad=True)
    mse_loss(model(x + added), x).backward()
    assert added.grad is not None
    return mse_loss(model(x + added.grad.sign()), x)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (_shares, "memory that is there already"),
        (_another_shape, "another shape or dtype"),
        (_backward_inside, r"calls \.backward\(\) itself"),
    ],
)
def test_refused(loss: Callable[[nn.Module, Tensor], Tensor], message: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    with pytest.raises(CaptureError, match=message):
        lowtide.train_step(model, torch.optim.SGD(model.parameters()), torch.randn(4, 8), loss)
    assert all(p.grad is None for p in model.parameters())


def test_a_backward_inside_whose_gradients_are_cleared() -> None:
    def loss(model: nn.Module, x: Tensor) -> Tensor:
        added = torch.zeros_like(x, requires_grad=True)
        mse_loss(model(x + added), x).backward()
        model.zero_grad()
        assert added.grad is not None
        return mse_loss(model(x + added.grad.sign()), x)

    train(lambda k, model: None, loss, make=lambda: nn.Linear(8, 8))


@dataclasses.dataclass
class Sample:
    """A batch that a step cannot look into."""

    x: Tensor


def test_objects_with_tensors_in_a_batch() -> None:
    model = nn.Linear(8, 8)
    for batch in (Sample(torch.randn(4, 8)), {"sample": Sample(torch.randn(4, 8))}):
        with pytest.raises(CaptureError, match="is a Sample that holds tensors"):
            lowtide.train_step(model, torch.optim.SGD(model.parameters()), batch, lambda m, b: m(b.x).sum())
