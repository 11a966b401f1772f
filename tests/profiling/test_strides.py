"""A kernel that gives other strides than its meta function says is found in the first op-by-op run."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.errors import ProfileError
from lowtide.tracing import true_strides


class Turned(nn.Module):
    """The gradient of the activation comes in other strides than its input has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5).t())

    def forward(self, x: Tensor) -> Tensor:
        """A loss."""
        return (F.hardswish(self.weight) * x).sum()


def test_strides_that_were_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Turned(), torch.randn(5, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lowtide.profile(lowtide.capture(model, optimizer, x), runs=1, quick=True)
    monkeypatch.delitem(true_strides._RULES, torch.ops.aten.hardswish_backward.default)
    with pytest.raises(ProfileError, match=r"hardswish_backward.*test_strides\.py:\d+.*\.contiguous\(\)"):
        lowtide.profile(lowtide.capture(model, optimizer, x), runs=1, quick=True)
