"""Parameters that lie in one storage, such as slices of a flat buffer, train under a budget as they do eagerly."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from tests.equality import Trained, differences, eager_step
from tests.zoo import often


class Shared(nn.Module):
    """Two parameters in one storage."""

    def __init__(self, how: str) -> None:
        super().__init__()
        flat = torch.randn(20)
        first, second = {
            "slices": (flat[:10], flat[10:]),
            "columns": (flat.view(2, 10)[:, :5], flat.view(2, 10)[:, 5:]),
            "overlapping": (flat[:12], flat[8:]),
            "the same": (flat, flat),
        }[how]
        self.body = nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(8, 8), nn.Tanh())))
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)

    def forward(self, x: Tensor) -> Any:
        """A loss."""
        return (self.body(x) @ self.first.reshape(-1)[:8]).mean() * self.second.sum() + self.second.tanh().sum()


def trained(how: str, **options: bool) -> Trained:
    """Not a copy: copying a module takes its parameters out of their storage."""
    torch.manual_seed(0)
    model = Shared(how)
    return Trained(model, torch.optim.Adam(model.parameters(), lr=0.01, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("fused", often([True, False], 1))
@pytest.mark.parametrize("how", often(["slices", "overlapping", "columns", "the same"], 2))
def test_equal_under_a_budget(how: str, fused: bool) -> None:
    ours, theirs, x = trained(how, fused=fused), trained(how, fused=fused), torch.randn(64, 8)
    step = lowtide.train_step(ours.model, ours.optimizer, x, budget="75%")
    for number in range(3):
        torch.manual_seed(number)
        ours.loss = step(x)
        eager_step(theirs, x, None, number)
        theirs.optimizer.zero_grad(set_to_none=True)
        assert list(differences(ours, theirs)) == [], f"step {number}"
