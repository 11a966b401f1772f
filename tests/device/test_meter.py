"""The allocator's truth: the shim against torch.profiler, and the same interface on CUDA."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

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
def test_one_meter_inside_another() -> None:
    outer, inner = ShimMeter(), ShimMeter()
    outer.start()
    torch.empty(5000, dtype=torch.uint8)
    inner.start()
    torch.empty(1000, dtype=torch.uint8)
    assert (inner.stop().peak, outer.stop().peak) == (1000, 5000)


@needs_compiler
def test_a_shim_that_does_not_compile_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(shim.ShimError, match=r"does not compile with .*false"):
        shim.load_shim.__wrapped__()


def kept_library(folder: Path) -> Path:
    """The library in the cache `folder`, as if compiled before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setattr(shim, "_compile", lambda _, library: library.write_bytes(b"kept"))
        with shim._library("g++") as library:
            return library


def test_a_compiled_shim_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    library = kept_library(tmp_path)
    assert library.read_bytes() == b"kept"
    assert library.is_relative_to(tmp_path)
    assert library.parent.stat().st_mode & 0o777 == 0o700
    library.parent.chmod(0o777)
    assert kept_library(tmp_path) == library
    assert library.parent.stat().st_mode & 0o777 == 0o700, "a folder of ours is closed again"
    assert not caplog.records


def no_folder(tmp_path: Path) -> None:
    """Nobody can make the cache folder, not even root."""
    (tmp_path / "lowtide").write_text("in the way")


def writable_by_others(tmp_path: Path) -> None:
    """Everybody may write the library."""
    kept_library(tmp_path).chmod(0o666)


def a_link(tmp_path: Path) -> None:
    """The library is elsewhere."""
    library = kept_library(tmp_path)
    library.rename(tmp_path / "elsewhere")
    library.symlink_to(tmp_path / "elsewhere")


def of_another(tmp_path: Path) -> None:
    """Somebody else owns the library."""
    os.chown(kept_library(tmp_path), 12345, -1)


@pytest.mark.parametrize(
    "spoil",
    [
        no_folder,
        writable_by_others,
        a_link,
        pytest.param(of_another, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")),
    ],
)
def test_a_cache_that_is_not_the_users_alone_is_not_used(
    spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shim, "_compile", lambda _, library: library.write_bytes(b"fresh"))
    with shim._library("g++") as library:
        assert library.read_bytes() == b"fresh"
        assert not library.is_relative_to(tmp_path)
        assert library.parent.stat().st_mode & 0o777 == 0o700
    assert not library.exists(), "what was compiled for this process alone is gone again"
    assert [record.message.count("XDG_CACHE_HOME") for record in caplog.records] == [1]


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    monkeypatch.setattr(shim, "_compile", lambda _, library: library.write_bytes(b"fresh"))
    with shim._library("g++") as library:
        assert library.read_bytes() == b"fresh"
    assert "home directory" in caplog.text


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
