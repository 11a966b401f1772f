"""Packed values come back bit for bit, in the same strides."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide
from lowtide.kernels.packing import _CHUNK, _flat, _gathered, pack_bits, pack_integers, unpack_bits, unpack_integers
from tests.zoo import ZOO

SIZES = [(1,), (7,), (8,), (9,), (3, 5, 7), (_CHUNK + 13,), (2, _CHUNK // 2 + 8)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool], ids=str)
def test_two_values_as_bits(size: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    on = 1.0 if dtype is torch.bool else float(torch.tensor(1, dtype=dtype) / 0.9)
    x = (torch.rand(size) < 0.9).to(dtype)
    x = x if dtype is torch.bool else x.mul_(on)
    bits = pack_bits(x)
    assert bits.dtype is torch.uint8
    assert bits.numel() == -(-x.numel() // 8)
    assert torch.equal(_gathered(_flat(x)), bits)  # how other devices pack
    again = unpack_bits(bits, list(x.shape), list(x.stride()), dtype=dtype, on=on)
    assert torch.equal(again, x)
    assert again.stride() == x.stride()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_strides(size: list[int], rng: object) -> None:
    order = list(range(len(size)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    x = (torch.rand([size[k] for k in order]) < 0.5).float().permute([order.index(k) for k in range(len(size))])
    again = unpack_bits(pack_bits(x), list(x.shape), list(x.stride()), dtype=x.dtype, on=1.0)
    assert torch.equal(again, x)
    assert again.stride() == x.stride()


@pytest.mark.parametrize(
    ("largest", "dtype"), [(255, torch.uint8), (32767, torch.int16), (70000, torch.int32)], ids=str
)
def test_indices_as_small_integers(largest: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, largest + 1, (3, 4, 5)).to(memory_format=torch.contiguous_format).transpose(0, 1)
    x[0, 0, 0], x[0, 0, 1] = 0, largest
    again = unpack_integers(pack_integers(x, dtype=dtype), list(x.shape), list(x.stride()), dtype=torch.int64)
    assert torch.equal(again, x)


def test_what_can_be_packed() -> None:
    """Dropout's noise to bits, with the value that dropout itself computes; max-pool indices by the plane's size."""
    case = ZOO["bert"]()
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1)
    found = lowtide.capture(case.model, optimizer, case.batch, case.loss).packings
    assert len(found) >= 7
    assert {packing.kind for packing in found} == {"bits"}
    noise = torch.empty(1000).bernoulli_(0.9).div_(0.9)
    assert {packing.on for packing in found} == {float(noise.max())}
    case = ZOO["convnet"]()
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1)
    (indices,) = lowtide.capture(case.model, optimizer, case.batch, case.loss).packings
    assert indices.kind == "uint8"
