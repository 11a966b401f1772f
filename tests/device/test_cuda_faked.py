"""The CUDA layer where there is no device: others stand in for torch.cuda's functions, and keep what they are asked."""

import sys
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.device import chosen_kernels
from lowtide.device.clock import clock_for
from lowtide.device.exhausted import is_out_of_memory
from lowtide.device.meter import Taken, meter_for
from lowtide.device.sampler import Sampler
from lowtide.kernels.replay import generator_bytes, replay_form
from lowtide.optimizer.update import describe, expected_state, is_foreach
from lowtide.profiling.inner import InnerOps

CUDA = torch.device("cuda")


class FakeCuda:
    """An allocator that rounds to 512 bytes, and streams and events that only say what was asked of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.asked: list[int] = []
        self.peaks = {"requested_bytes": 0, "allocated_bytes": 0}
        self.backend = "native"
        self.current = 1
        for name in ("memory_stats", "reset_peak_memory_stats", "current_stream", "synchronize", "Event"):
            patch.setattr(torch.cuda, name, getattr(self, name))
        patch.setattr(torch.cuda, "current_device", lambda: self.current)
        patch.setattr(torch.cuda, "get_allocator_backend", lambda: self.backend)

    def take(self, size: int) -> None:
        """Ask for memory."""
        self.asked.append(size)
        self.peaks = {kind: max(self.peaks[kind], now) for kind, now in self.now.items()}

    @property
    def now(self) -> dict[str, int]:
        """Bytes by kind."""
        rounded = sum(-(-size // 512) * 512 for size in self.asked)
        return {"requested_bytes": sum(self.asked), "allocated_bytes": rounded}

    def memory_stats(self, device: torch.device) -> dict[str, int]:
        """As torch flattens them."""
        assert device == torch.device("cuda:1")
        current = {f"{kind}.all.current": size for kind, size in self.now.items()}
        return current | {f"{kind}.all.peak": size for kind, size in self.peaks.items()}

    def reset_peak_memory_stats(self, device: torch.device) -> None:
        """The user's statistics are gone."""
        self.log.append(f"reset {device}")
        self.peaks = self.now

    def synchronize(self, device: object = None) -> None:
        """The host waits for everything."""
        raise AssertionError("nothing may wait for the whole device")

    def current_stream(self, device: torch.device) -> str:
        """Of the device that is asked for."""
        return f"stream of {device}"

    def Event(self, **_: Any) -> "FakeEvent":
        """A new one."""
        return FakeEvent(self.log)


class FakeEvent:
    """Says where it was recorded and who waits."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record(self, stream: str) -> None:
        """On a stream."""
        self.log.append(f"event on {stream}")

    def synchronize(self) -> None:
        """The host waits for it."""
        self.log.append("host waits for the event")

    def elapsed_time(self, other: "FakeEvent") -> float:
        """Milliseconds."""
        return 3.0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda(monkeypatch)


@pytest.mark.parametrize(("backend", "expected"), [("native", Taken(401, 1)), ("cudaMallocAsync", Taken(1024, 512))])
def test_bytes_are_counted_as_storages_count_them(fake: FakeCuda, backend: str, expected: Taken) -> None:
    """Not as blocks of 512 bytes, where the allocator knows; and without waiting for the device."""
    fake.backend = backend
    fake.take(100)
    meter = meter_for(CUDA)
    fake.current = 0  # another device becomes the current one: the meter's stays
    meter.start()
    fake.take(1)
    fake.take(400)
    fake.asked.pop()
    assert meter.stop() == expected
    assert fake.log == ["reset cuda:1"]
    assert not meter.free


def test_the_clock_is_that_of_the_device_that_was_meant(fake: FakeCuda) -> None:
    clock = clock_for(CUDA)
    fake.current = 0
    clock.start()
    assert clock.stop() == 3.0
    assert fake.log == ["event on stream of cuda:1", "event on stream of cuda:1", "host waits for the event"]


def test_the_sampler_looks_at_the_device_that_was_meant(fake: FakeCuda) -> None:
    """From a thread of its own, where another device is current."""
    sampler = Sampler(CUDA, every_ms=1000)
    fake.current = 0
    with sampler:
        fake.take(700)
    assert sampler.samples[-1][1] == 700
    assert sampler.taken == Taken(700, 700)


class Order:
    """A clock and a meter in one, which keep the order of what is asked."""

    name, free = "order", True

    def __init__(self, log: list[str], who: str) -> None:
        self.log, self.who = log, who

    def start(self) -> None:
        """Begin."""
        self.log.append(f"{self.who} starts")

    def stop(self) -> Any:
        """End."""
        self.log.append(f"{self.who} stops")
        return 2.0 if self.who == "clock" else Taken(8, 8)


def test_inner_ops_are_timed_by_the_clock_of_the_device() -> None:
    """Host time around a call would be that of asking for the work, and the meter is no part of what is timed."""
    log: list[str] = []
    with InnerOps(Order(log, "clock"), Order(log, "meter")) as inner:
        torch.ones(2)
    assert log == ["meter starts", "clock starts", "clock stops", "meter stops"]
    (record,) = inner.records()
    assert (record.runtime_ms, record.peak_B) == (2.0, 8)


def test_a_replay_looks_its_generator_up_at_each_run(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda` without a number is the current device, which may change between two steps."""
    generators = [torch.Generator().manual_seed(k) for k in range(2)]
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    replay = replay_form(torch.ops.aten.relu.default, CUDA)
    for current in (1, 0):
        fake.current = current
        state = torch.Generator().manual_seed(7).get_state()
        seen: list[int] = []
        monkeypatch.setattr(torch.ops.aten.relu.default, "_op", lambda x, seen=seen: seen.extend(_seeds(generators)))
        replay(state, torch.ones(1))
        assert seen == [7 if k == current else k for k in range(2)]
        assert _seeds(generators) == [0, 1]


def _seeds(generators: list[torch.Generator]) -> list[int]:
    return [generator.initial_seed() for generator in generators]


def test_generator_states_of_other_devices_take_host_memory() -> None:
    assert generator_bytes(torch.device("cpu")) == torch.get_rng_state().nbytes == 5056
    assert generator_bytes(CUDA) == 0


@pytest.fixture
def parameter() -> nn.Parameter:
    """On a device that is not the CPU: the meta device stands for it."""
    return nn.Parameter(torch.empty(10, 3, device="meta"))


def test_the_state_that_is_foreseen_is_on_the_device_of_its_parameter(parameter: nn.Parameter) -> None:
    """Adam counts its steps on the CPU unless it is capturable: those bytes are none of the device's."""
    optimizer = torch.optim.Adam([parameter])
    assert expected_state(optimizer, parameter) == {"exp_avg": 120, "exp_avg_sq": 120}
    parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    assert expected_state(optimizer, parameter) == {"exp_avg": 120, "exp_avg_sq": 120}


def test_the_rehearsal_of_the_optimizer_runs_where_the_parameter_is(
    parameter: nn.Parameter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capturable optimizer refuses other devices, and counts its steps on the device."""
    adam = sys.modules[torch.optim.Adam.__module__]
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", lambda: ["meta"])
    optimizer = torch.optim.Adam([parameter], capturable=True, foreach=False)
    assert expected_state(optimizer, parameter) == {"step": 4, "exp_avg": 120, "exp_avg_sq": 120}


def test_foreach_is_what_torch_takes_off_the_cpu(parameter: nn.Parameter) -> None:
    assert is_foreach(torch.optim.Adam([parameter]))
    assert describe(torch.optim.Adam([parameter])) == "Adam, foreach"
    on_cpu = nn.Parameter(torch.empty(2))
    assert not is_foreach(torch.optim.Adam([parameter, on_cpu]))
    assert not is_foreach(torch.optim.Adam([parameter], differentiable=True))
    assert is_foreach(torch.optim.Adam([on_cpu], foreach=True))


@pytest.mark.parametrize("where", ["CUDA out of memory. Tried", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_libraries_that_get_no_memory_are_understood(where: str) -> None:
    assert is_out_of_memory(RuntimeError(where))


class TestChosenKernels:
    """Recomputation does not meet kernels that differ from run to run without a word."""

    @pytest.fixture(autouse=True)
    def anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen_kernels._say.cache_clear()
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)

    def warnings(self, caplog: pytest.LogCaptureFixture, *ops: str, device: torch.device = CUDA) -> list[str]:
        """What is said, when asked twice."""
        for _ in range(2):
            chosen_kernels.warn_of_chosen_kernels(ops, device)
        return caplog.messages

    def test_each_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        found = self.warnings(caplog, "aten.convolution.default", "aten.cumsum.default", "aten.relu.default")
        assert len(found) == 2
        assert "cudnn.benchmark" in found[0]
        assert "runs cumsum again" in found[1]

    def test_other_devices_and_kernels_are_silent(self, caplog: pytest.LogCaptureFixture) -> None:
        conv = "aten.convolution.default"
        assert not self.warnings(caplog, conv, "aten.cumsum.default", device=torch.device("cpu"))
        assert not self.warnings(caplog, "aten.addmm.default", "lowtide.unpack_bits.default")

    def test_nothing_is_said_where_algorithms_are_fixed(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
        assert not self.warnings(caplog, "aten.convolution.default")
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        assert not self.warnings(caplog, "aten.cumsum.default")
