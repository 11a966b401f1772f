"""The allocator's truth: the shim against torch.profiler, and the same interface on CUDA."""

import gc
import threading

import pytest
import torch
from torch import nn

import lowtide
from lowtide.device import shim
from lowtide.device.clock import clock_for, total_memory
from lowtide.device.meter import Meter, ProfilerMeter, ShimMeter, meter_for
from tests.zoo import ZOO

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="no C++ compiler on this machine")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


@needs_compiler
@pytest.mark.parametrize("layer", [nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3, groups=16), nn.LayerNorm([16, 8, 8])])
def test_shim_and_profiler_agree(layer: nn.Module) -> None:
    x = torch.randn(4, 16, 8, 8)
    taken = []
    for meter in (ShimMeter(), ProfilerMeter()):
        gc.collect()
        with torch.no_grad():
            layer(x)
            meter.start()
            out = layer(x)
            taken.append(meter.stop())
        del out
    assert taken[0] == taken[1]
    assert taken[0].peak >= taken[0].net > 0


@needs_compiler
def test_the_shim_sees_other_threads_and_frees() -> None:
    meter = ShimMeter()
    meter.start()
    kept: list[torch.Tensor] = []
    worker = threading.Thread(target=lambda: kept.append(torch.empty(1000, dtype=torch.uint8)))
    worker.start()
    worker.join()
    torch.empty(5000, dtype=torch.uint8)
    taken = meter.stop()
    assert (taken.peak, taken.net) == (6000, 1000)
    kept.clear()
    assert meter.stop().net == 0


@needs_compiler
def test_a_shim_that_does_not_compile_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(shim.ShimError, match=r"does not compile with .*false"):
        shim.load_shim.__wrapped__()


def test_cpu_time_and_size() -> None:
    clock = clock_for(torch.device("cpu"))
    clock.start()
    assert clock.stop() >= 0
    assert total_memory(torch.device("cpu")) > 2**28


@needs_cuda
@pytest.mark.cuda
def test_cuda_has_the_same_interface() -> None:
    device = torch.device("cuda")
    meter: Meter = meter_for(device)
    torch.empty(1, device=device)
    meter.start()
    kept = torch.empty(2**20, dtype=torch.uint8, device=device)
    assert meter.stop().net == kept.numel()
    clock = clock_for(device)
    clock.start()
    assert clock.stop() >= 0


@needs_cuda
@pytest.mark.cuda
def test_a_step_on_cuda_is_captured_and_profiled() -> None:
    case = ZOO["mlp"]()
    model = case.model.cuda()
    batch = tuple(x.cuda() for x in case.batch)
    graph = lowtide.capture(model, torch.optim.Adam(model.parameters()), batch, case.loss)
    profile = lowtide.profile(graph, runs=1)
    assert profile.memory_source == "torch.cuda.memory_stats"
    assert profile.peak_B == pytest.approx(profile.step_peak_B, rel=0.01)
