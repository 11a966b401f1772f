"""`lowtide::sign_backward` is `threshold_backward` to the last bit, from one bit per element."""

import pytest
import torch
from torch import Tensor

from lowtide.kernels import packing
from lowtide.kernels.packing import pack_bits, sign_backward

aten = torch.ops.aten
SPECIAL = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), -float("nan"), 1e-45, -1e-45, 1.5, -1.5)
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal shape, strides and bytes: -0.0 is not 0.0, and NaN equals itself."""
    kind = BITS[a.dtype]
    return a.stride() == b.stride() and torch.equal(a.view(kind), b.view(kind))


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("size", [1, 7, 8, 65, 1000, 4096 + 5])
def test_the_same_bits(dtype: torch.dtype, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_CHUNK", 512)
    torch.manual_seed(size)
    x, gradient = torch.randn(size, dtype=torch.float64).to(dtype), torch.randn(size, dtype=torch.float64).to(dtype)
    values = torch.tensor(SPECIAL).to(dtype)
    for tensor in (x, gradient):
        places = torch.randint(0, size, (size // 2,))
        tensor[places] = values[torch.randint(0, len(values), (len(places),))]
    result = aten.relu.default(x)
    assert same_bits(sign_backward(gradient, pack_bits(result)), aten.threshold_backward.default(gradient, result, 0))


def test_every_special_gradient_behind_every_special_result() -> None:
    values = torch.tensor(SPECIAL)
    result = aten.relu.default(values.repeat_interleave(len(values)))
    gradient = values.repeat(len(values))
    ours, theirs = sign_backward(gradient, pack_bits(result)), aten.threshold_backward.default(gradient, result, 0)
    assert same_bits(ours, theirs)
    assert bool(torch.isnan(ours).any())
    assert bool(torch.isinf(ours).any())


@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format], ids=str)
def test_strides_are_kept(order: torch.memory_format) -> None:
    result = torch.randn(2, 3, 5, 7).relu().to(memory_format=order)
    gradient = torch.randn(2, 3, 5, 7).to(memory_format=order)
    assert same_bits(sign_backward(gradient, pack_bits(result)), aten.threshold_backward.default(gradient, result, 0))
    turned, other = result.transpose(1, 3), gradient.transpose(1, 3)
    assert same_bits(sign_backward(other, pack_bits(turned)), aten.threshold_backward.default(other, turned, 0))


def test_what_is_given_stays_as_it_is() -> None:
    gradient, result = torch.randn(999), torch.randn(999).relu()
    before, bits = gradient.clone(), pack_bits(result)
    kept = bits.clone()
    sign_backward(gradient, bits)
    assert torch.equal(gradient, before)
    assert torch.equal(bits, kept)
    assert bits.nbytes == 125
