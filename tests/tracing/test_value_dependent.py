"""Derivatives that look at values are eager's own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.errors import CaptureError
from tests.tracing.test_same_kernels import Small, assert_same
from tests.zoo import often


def _autocast(p: list[Tensor], x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ p[0]).prod(1).sum() + torch.prod(p[0])


def _infinite(p: list[Tensor], x: Tensor, reduce: Callable[[Tensor], Tensor]) -> Any:
    """The gradient of the root is infinite, and finite times zero must stay zero elsewhere."""
    value = reduce(x @ p[0])
    return (value - value.detach()).sqrt() + (x @ p[0]).mean()


def _weighted(p: list[Tensor], x: Tensor) -> Any:
    labels = torch.where(x[:, 0] > 0.3, -100, x[:, 1].gt(0).long())
    return F.cross_entropy(x @ p[0], labels, torch.arange(5) / 7, label_smoothing=0.1)


BODIES: dict[str, Callable[[list[Tensor], Tensor], Any]] = {
    "prod of a dimension": lambda p, x: (x @ p[0]).prod(1).sum(),
    "prod of all": lambda p, x: torch.prod(x @ p[0]),
    "prod with zeros": lambda p, x: (x @ p[0]).relu().prod(dim=0, keepdim=True).sum(),
    "prod with a zero here and there": lambda p, x: (x @ p[0]).round().prod(0).sum(),
    "prod of a transposed tensor": lambda p, x: (x @ p[0]).t().prod(0).sin().sum(),
    "prod in bfloat16": _autocast,
    "filled by a variable": lambda p, x: (x @ p[0]).masked_fill(x[:, :5] > 0, p[1].sum()).exp().sum(),
    "max": lambda p, x: _infinite(p, x, torch.max),
    "min": lambda p, x: _infinite(p, x, torch.min),
    "median": lambda p, x: _infinite(p, x, Tensor.median),
    "weighted and smooth cross entropy": _weighted,
}


@pytest.mark.parametrize("name", often(BODIES, ["prod of a dimension"]))
def test_gradients_are_eagers(name: str) -> None:
    assert_same(BODIES[name], [(8, 5), (3,)], (37 if "weighted" in name else 9, 8), tries=10)


def test_a_second_derivative_of_them_is_refused() -> None:
    def body(p: list[Tensor], x: Tensor) -> Any:
        inner = (x @ p[0]).prod(1).sum()
        (slope,) = torch.autograd.grad(inner, p[0], create_graph=True)
        return slope.pow(2).sum()

    model = Small(body, [torch.randn(8, 5)])
    with pytest.raises(CaptureError, match="create_graph"):
        lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8))


def test_filling_in_place_by_a_variable_is_refused() -> None:
    model = Small(
        lambda p, x: (x @ p[0]).masked_fill_(x[:, :5] > 0, p[1].sum()).sum(),
        [torch.ones(8, 5), nn.Parameter(torch.ones(3))],
    )
    with pytest.raises(CaptureError, match=r"test_value_dependent\.py:\d+.*use masked_fill"):
        lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 8))


def test_a_frozen_teacher_on_the_fast_path_is_refused() -> None:
    teacher = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().requires_grad_(False)

    def body(p: list[Tensor], x: Tensor) -> Any:
        with torch.no_grad():
            hidden = teacher(x)
        return (hidden @ p[0]).exp().mean()

    model = Small(body, [torch.randn(8, 3)])
    with pytest.raises(CaptureError, match=r"test_value_dependent\.py:\d+.*set_fastpath_enabled"):
        lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(4, 5, 8))
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert_same(body, [(8, 3)], (4, 5, 8))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
