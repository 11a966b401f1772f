"""Values come back from disk bit for bit, in order, and the space holds nothing of them longer than it says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lowtide.device.swap import SwapError, SwapSpace, open_space

MIB = 2**20


@pytest.fixture
def space(tmp_path: Path) -> Iterator[SwapSpace]:
    opened = open_space("disk", torch.device("cpu"), tmp_path)
    opened.reserve(8 * MIB)
    yield opened
    opened.close()


def bits(value: Tensor) -> bytes:
    return bytes(torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).numpy().data)


def there_and_back(space: SwapSpace, value: Tensor) -> Tensor:
    parked = space.offload(value)
    space.settle(parked)
    back = space.prefetch(parked)
    space.arrive(back)
    return back


VALUES = {
    "float32": lambda: torch.randn(300, 300),
    "nan payloads": lambda: torch.randint(-(2**31), 2**31, (70_001,), dtype=torch.int32).view(torch.float32),
    "bfloat16": lambda: torch.randn(33, 77, dtype=torch.bfloat16),
    "bool": lambda: torch.rand(12_345) < 0.5,
    "int64": lambda: torch.randint(0, 9, (5_000,)),
    "odd bytes": lambda: torch.randint(0, 256, (100_003,), dtype=torch.uint8),
    "one byte": lambda: torch.tensor([7], dtype=torch.uint8),
    "block less one": lambda: torch.randint(0, 256, (1023,), dtype=torch.uint8),
    "empty": lambda: torch.empty(0, 5),
    "scalar": lambda: torch.tensor(3.25, dtype=torch.float64),
    "transposed": lambda: torch.randn(130, 70).t(),
    "channels last": lambda: torch.randn(4, 8, 9, 9).to(memory_format=torch.channels_last),
    "complex": lambda: torch.randn(1000, dtype=torch.complex64),
}


@pytest.mark.parametrize("name", VALUES)
def test_bit_for_bit(space: SwapSpace, name: str) -> None:
    value = VALUES[name]()
    before = bits(value)
    back = there_and_back(space, value)
    assert (back.shape, back.stride(), back.dtype) == (value.shape, value.stride(), value.dtype)
    assert bits(back) == before
    assert back.data_ptr() != value.data_ptr() or value.nbytes == 0


def test_only_whole_storages(space: SwapSpace) -> None:
    with pytest.raises(SwapError, match="fills the storage"):
        space.offload(torch.randn(10)[:5])
