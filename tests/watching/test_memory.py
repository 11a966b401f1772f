"""Tensors that come to lie in the same memory between two steps: an update of one is then seen by another."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.watching.memory import Memory


def layers() -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])


def _ties(k: int, model: Any, batch: Tensor) -> Tensor:
    if k == 1:
        model[2][0].weight.data = model[0][0].weight.data
    elif k == 3:
        model[2][0].weight.data = model[0][0].weight.data.clone()
    return batch


def _feeds_a_parameter(k: int, model: Any, batch: Tensor) -> Tensor:
    return batch if k < 1 else model[3][0].weight.detach()


@pytest.mark.parametrize("change", [_ties, _feeds_a_parameter])
def test_equal_under_a_budget(change: Callable[[int, Any, Tensor], Tensor]) -> None:
    def trained(ours: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model, batch = layers(), torch.randn(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss = lambda m, b: m(b).pow(2).mean()  # noqa: E731
        options: dict[str, Any] = {"budget": "90%", "time_limit": 2, "sentinel": False}
        step = lowtide.train_step(model, optimizer, batch, loss, **options) if ours else None
        for k in range(4):
            given = change(k, model, batch)
            if step is not None:
                step(given)
                continue
            optimizer.zero_grad()
            loss(model, given).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return list(model.parameters())

    assert all(map(torch.equal, trained(True), trained(False)))


def test_other_places_alone_are_no_change() -> None:
    one, other = torch.ones(3), torch.ones(3)
    memory = Memory.of([one, other], [one[1:], torch.ones(2)])
    assert memory.batch == (0, -1)
    one.data = one.data.clone()
    assert not memory.changed()
    other.data = one.data
    assert memory.changed()
