"""Pinned host memory for CUDA tensors; the room itself is tested everywhere, copies only where there is a device."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from lowtide.device.swap import SwapError, SwapSpace, Waited, host, measure_copies, open_space
from lowtide.device.swap.host import HostSpace, Pool
from lowtide.device.swap.slots import Extent, Slots
from tests.device.swap.values import MIB, bits, there_and_back

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
cuda = [pytest.mark.cuda, needs_cuda]


def test_pieces_of_memory_are_one_room() -> None:
    pool, slots = Pool(), Slots()
    for size in (10, 7, 20):
        slots.give((pool.add(torch.zeros(size, dtype=torch.uint8)),))
    assert pool.size == slots.free_bytes == 37
    first, rest = torch.arange(9, dtype=torch.uint8), torch.arange(100, 128, dtype=torch.uint8)
    placed = [(value, slots.take(len(value))) for value in (first, rest)]
    for value, extents in placed:
        assert extents is not None
        for here, there in pool.pairs(extents, value):
            here.copy_(there)
    for value, extents in placed:
        assert extents is not None
        assert torch.equal(torch.cat([here for here, _ in pool.pairs(extents, value)]), value)
    assert slots.take(1) is None


def test_extents_do_not_cross_pieces() -> None:
    pool, slots = Pool(), Slots()
    slots.give((pool.add(torch.zeros(8, dtype=torch.uint8)),))
    slots.give((pool.add(torch.zeros(8, dtype=torch.uint8)),))
    assert [extent.size for extent in slots.take(16) or ()] == [8, 8]
    assert pool.extents == (Extent(0, 8), Extent(9, 8))


class Told:
    """Stands for streams and events where there is no device: copies happen at once, and who waits for whom is kept."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: "Told") -> None:
        self.log.append(f"{self.name} after {other.name}")

    wait_event = wait_stream

    def record(self, stream: "Told") -> None:
        self.name = f"event on {stream.name}"

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "Told") -> float:
        return 500.0

    def synchronize(self) -> None:
        self.log.append(f"host after {self.name}")


def test_who_waits_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams for each other, by events; the host for nobody."""
    log: list[str] = []
    names = iter(("out", "in"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Told(log, next(names)))
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing=False: Told(log, "nothing"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Told(log, "compute"))
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(host, "pinned", lambda size: torch.empty(size, dtype=torch.uint8))
    space = HostSpace(torch.device("cpu"))
    space.reserve(1000)
    value = torch.randn(50, 5).t()
    parked = space.offload(value)
    space.settle(parked)
    back = space.prefetch(parked)
    space.arrive(back)
    assert torch.equal(back, value)
    assert back.stride() == value.stride()
    assert log == [
        *("out after compute", "compute after event on out"),
        *("in after compute", "in after event on out", "compute after event on in"),
    ]
    assert space.waited == Waited(settle_s=0.5, arrive_s=0.5)
    space.reset_waited()
    assert space.waited == Waited()
    with pytest.raises(SwapError, match="reserve more"):
        space.offload(value)
    space.recover()
    assert torch.equal(there_and_back(space, value), value)
    space.close()
    space.close()
    with pytest.raises(SwapError, match="closed"):
        space.reserve(1)


@pytest.fixture
def space() -> Iterator[SwapSpace]:
    opened = open_space("host", torch.device("cuda"))
    opened.reserve(8 * MIB)
    yield opened
    opened.close()


class TestOnCuda:
    """Written to the documented API; skipped where there is no device."""

    pytestmark = cuda

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.uint8])
    def test_bit_for_bit(self, space: SwapSpace, dtype: torch.dtype) -> None:
        value = torch.randint(0, 2, (77, 1001), device="cuda").to(dtype).t().clone(memory_format=torch.preserve_format)
        back = there_and_back(space, value)
        assert back.stride() == value.stride()
        assert bits(back) == bits(value)

    def test_behind_the_work_that_makes_the_value(self, space: SwapSpace) -> None:
        """Nothing is waited for until the end, and memory is used again as soon as it may be."""
        backs = []
        for number in range(20):
            value = torch.zeros(MIB // 4, device="cuda")
            for _ in range(50):
                value += number
            parked = space.offload(value)
            space.settle(parked)
            del value
            backs.append(space.prefetch(parked))
        for number, back in enumerate(backs):
            space.arrive(back)
            assert (back == 50 * number).all()

    def test_memory_is_free_at_settle(self, space: SwapSpace) -> None:
        before = torch.cuda.memory_allocated()
        parked = space.offload(torch.ones(MIB, device="cuda"))
        space.settle(parked)
        assert torch.cuda.memory_allocated() == before + space.held_bytes
        back = space.prefetch(parked)
        space.arrive(back)
        del back
        assert torch.cuda.memory_allocated() == before + space.held_bytes

    def test_recover_and_close(self, space: SwapSpace) -> None:
        parked = space.offload(torch.ones(2 * MIB, device="cuda"))
        space.prefetch(parked)
        space.recover()
        with pytest.raises(SwapError, match="forgotten"):
            space.prefetch(parked)
        value = torch.randn(2 * MIB, device="cuda")
        assert torch.equal(there_and_back(space, value), value)
        space.close()
        space.close()
        with pytest.raises(SwapError, match="closed"):
            space.offload(value)

    def test_measured(self, space: SwapSpace) -> None:
        assert all(sample.out_ms > 0 and sample.in_ms > 0 for sample in measure_copies(space, MIB))
