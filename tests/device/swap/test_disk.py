"""Values come back from disk bit for bit, in order, and the space holds nothing of them longer than it says."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lowtide.device import shim
from lowtide.device.meter import ShimMeter
from lowtide.device.swap import Parked, SwapError, SwapSpace, measure_copies, open_space
from lowtide.device.swap.disk import DiskSpace
from tests.device.swap.files import GatedFile, SlowFile
from tests.device.swap.values import MIB, bits, space_on, there_and_back

CPU = torch.device("cpu")
VALUES: dict[str, Callable[[], Tensor]] = {
    "float32": lambda: torch.randn(300, 300),
    "nan payloads": lambda: torch.randint(-(2**31), 2**31, (70_001,), dtype=torch.int32).view(torch.float32),
    "bfloat16": lambda: torch.randn(33, 77, dtype=torch.bfloat16),
    "bool": lambda: torch.rand(12_345) < 0.5,
    "int64": lambda: torch.randint(0, 9, (5_000,)),
    "odd bytes": lambda: torch.randint(0, 256, (100_003,), dtype=torch.uint8),
    "one byte": lambda: torch.tensor([7], dtype=torch.uint8),
    "two blocks less one byte": lambda: torch.randint(0, 256, (1023,), dtype=torch.uint8),
    "empty": lambda: torch.empty(0, 5),
    "scalar": lambda: torch.tensor(3.25, dtype=torch.float64),
    "transposed": lambda: torch.randn(130, 70).t(),
    "channels last": lambda: torch.randn(4, 8, 9, 9).to(memory_format=torch.channels_last),
    "complex": lambda: torch.randn(1000, dtype=torch.complex64),
    "with gradient": lambda: torch.randn(5000, requires_grad=True),
}


@pytest.fixture
def space(tmp_path: Path) -> Iterator[SwapSpace]:
    opened = open_space("disk", CPU, tmp_path)
    opened.reserve(8 * MIB)
    yield opened
    opened.close()


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[tuple[DiskSpace, GatedFile]]:
    file = GatedFile(tmp_path)
    opened = space_on(file, 4 * MIB)
    yield opened, file
    file.gate.set()
    opened.close()


@pytest.mark.parametrize("name", VALUES)
def test_bit_for_bit(space: SwapSpace, name: str) -> None:
    value = VALUES[name]()
    before = bits(value)
    back = there_and_back(space, value)
    assert (back.shape, back.stride(), back.dtype) == (value.shape, value.stride(), value.dtype)
    assert bits(back) == before
    assert back.data_ptr() != value.data_ptr() or value.nbytes == 0


@pytest.mark.parametrize("size", [1, 511, 512, 1022, 1023, 1024, 5000, 8191, 70_000])
@pytest.mark.parametrize(("out", "back"), [(0, 0), (64, 64), (64, 448), (448, 64), (0, 511), (511, 0), (3, 200)])
def test_wherever_the_memory_starts(
    space: SwapSpace, size: int, out: int, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(address: int) -> Tensor:
        memory = mmap.mmap(-1, 2**17)
        return torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=address)

    value = at(out).copy_(torch.randint(0, 256, (size,), dtype=torch.uint8))
    assert value.data_ptr() % 4096 == out
    monkeypatch.setattr(Parked, "like", lambda self, device: at(back))
    assert torch.equal(there_and_back(space, value), value)


def test_only_whole_storages_of_the_device(space: SwapSpace) -> None:
    with pytest.raises(SwapError, match="fills the storage"):
        space.offload(torch.randn(10)[:5])
    with pytest.raises(SwapError, match="for values on cpu, not on meta"):
        space.offload(torch.empty(10, device="meta"))


def test_in_order_without_waiting(gated: tuple[DiskSpace, GatedFile]) -> None:
    """A prefetch behind its own offload, the same value several times, and room that is used again behind a read."""
    space, file = gated
    values = [torch.randn(100_000) for _ in range(20)]
    backs = []
    for value in values:  # 8 MB into 4 MiB of room: later ones take the room of earlier ones
        parked = space.offload(value)
        backs.append((space.prefetch(parked), space.prefetch(parked)))
        del parked
    file.gate.set()
    for value, (first, second) in reversed(list(zip(values, backs, strict=True))):
        space.arrive(second)
        space.arrive(first)
        assert torch.equal(first, value)
        assert torch.equal(second, value)


def test_room_is_free_when_the_parked_dies(space: SwapSpace) -> None:
    value = torch.zeros(8 * MIB, dtype=torch.uint8)
    parked = space.offload(value)
    with pytest.raises(SwapError, match="reserve more"):
        space.offload(torch.zeros(MIB))
    space.settle(parked)
    del parked
    there_and_back(space, value)
    space.reserve(12 * MIB)
    kept = space.offload(value)
    assert torch.equal(there_and_back(space, torch.ones(MIB)), torch.ones(MIB))
    space.settle(kept)


def test_what_fits_by_its_sum_fits(space: SwapSpace) -> None:
    """Room in eight holes takes a value of their sum, in pieces."""
    parked = [space.offload(torch.full((MIB // 2,), number, dtype=torch.uint8)) for number in range(16)]
    del parked[::2]
    value = torch.randint(0, 256, (4 * MIB,), dtype=torch.uint8)
    assert torch.equal(there_and_back(space, value), value)
    for number, one in zip(range(1, 16, 2), parked, strict=True):
        space.settle(one)
        back = space.prefetch(one)
        space.arrive(back)
        assert (back == number).all()


@pytest.mark.skipif(shim.compiler() is None, reason="no C++ compiler on this machine")
def test_memory_is_free_at_settle_and_nothing_is_held(tmp_path: Path) -> None:
    meter = ShimMeter()
    value: Tensor | None = torch.ones(MIB)
    meter.start()
    space = space_on(SlowFile(tmp_path, 0.01))
    assert value is not None
    parked = space.offload(value)
    space.settle(parked)
    value = None
    assert meter.stop().net == space.held_bytes - 4 * MIB
    for _ in range(20):
        back: Tensor | None = space.prefetch(parked)
        assert back is not None
        space.arrive(back)
        back = None
        assert meter.stop().net == space.held_bytes - 4 * MIB
    assert meter.stop().peak <= space.held_bytes + 4096
    space.close()


def test_values_that_nobody_holds_live_until_they_are_there(gated: tuple[DiskSpace, GatedFile]) -> None:
    """An unwinding exception drops both ends of a transfer: no thread may touch memory that others have by then."""
    space, file = gated
    parked = space.offload(torch.full((MIB // 2,), 5.0))
    space.prefetch(parked)
    others = [torch.full((MIB // 2,), 6.0) for _ in range(4)]
    file.gate.set()
    back = space.prefetch(parked)
    space.arrive(back)
    assert (back == 5).all()
    assert all((other == 6).all() for other in others)


def test_waits_are_counted_by_kind(tmp_path: Path) -> None:
    space = space_on(SlowFile(tmp_path, 0.02))
    parked = space.offload(torch.ones(1000))
    space.settle(parked)
    assert space.waited.settle_s > 0
    assert space.waited.arrive_s == 0
    space.arrive(space.prefetch(parked))
    assert space.waited.arrive_s > 0
    space.reset_waited()
    assert (space.waited.settle_s, space.waited.arrive_s) == (0, 0)
    space.close()


def test_arrive_wants_a_value_on_its_way(space: SwapSpace) -> None:
    back = there_and_back(space, torch.ones(10))
    with pytest.raises(SwapError, match="not on its way"):
        space.arrive(back)


def test_closed_is_closed(space: SwapSpace) -> None:
    parked = space.offload(torch.ones(1000))
    space.close()
    space.close()
    for call in (lambda: space.offload(torch.ones(3)), lambda: space.prefetch(parked), lambda: space.reserve(1)):
        with pytest.raises(SwapError, match="closed"):
            call()


def test_tiers_and_devices_fit() -> None:
    with pytest.raises(SwapError, match="host memory already"):
        open_space("host", CPU)
    with pytest.raises(SwapError, match="cannot be swapped to disk"):
        open_space("disk", torch.device("cuda"))


def test_measure_uses_the_space_and_no_random_numbers(space: SwapSpace) -> None:
    state = torch.get_rng_state()
    samples = measure_copies(space, MIB)
    assert [sample.bytes for sample in samples] == [2**16, MIB]
    assert all(sample.out_ms > 0 and sample.in_ms > 0 for sample in samples)
    assert torch.equal(torch.get_rng_state(), state)
    assert space.waited.settle_s > 0


def test_a_slow_disk_is_measured_as_such(tmp_path: Path) -> None:
    slow = space_on(SlowFile(tmp_path, 0.05))
    for sample in measure_copies(slow, MIB):
        assert min(sample.out_ms, sample.in_ms) >= 50  # sleep never returns early
    slow.close()
