"""The doctor: its report tells what is here and what is wrong, also of a GPU that torch only claims to have."""

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import lowtide
from lowtide.cli import app
from lowtide.device.meter import Taken
from lowtide.errors import InputError
from lowtide.experiments.doctor import run
from lowtide.experiments.doctor.run import CHECKS, CheckFailed, device_called, examine

CPU = torch.device("cpu")


def broken(device: torch.device) -> str:
    raise CheckFailed("the bytes | are gone")


def quiet(message: str) -> None:
    """Says nothing."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """torch says that there is a GPU, and what it is."""

    class Counted:
        name = "torch.cuda.memory_stats"

    for name, value in (
        ("is_available", True),
        ("get_device_name", "A card"),
        ("get_device_capability", (9, 0)),
        ("get_allocator_backend", "native"),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setattr(run, "total_memory", lambda device: 80 * 2**30)
    monkeypatch.setattr(run, "meter_for", lambda device: Counted())
    return torch.device("cuda")


def test_a_gpu_is_described_and_every_check_is_told_of_it(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []

    def look(device: torch.device) -> str:
        asked.append(device)
        return "seen"

    monkeypatch.setattr(run, "CHECKS", dict.fromkeys(CHECKS, look) | {"last": broken})
    assert device_called(None) == device_called("cuda") == gpu
    diagnosis = examine(gpu, quiet)
    assert asked == [gpu] * len(CHECKS)
    report = diagnosis.markdown()
    assert report.startswith(f"# lowtide doctor: {len(CHECKS)} of {len(CHECKS) + 1} checks passed on cuda\n")
    for line in ("| GPU | A card, compute capability 9.0 |", "| allocator | native |", "80.0 GiB", "memory_stats"):
        assert line in report
    assert "| last | **failed** | 0.0 | CheckFailed: the bytes / are gone |" in report
    assert "## last" in report
    assert "test_doctor.py" in report.partition("## last")[2]


def test_a_counter_that_is_wrong_and_values_that_come_back_damaged_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        name, free = "blind", True

        def start(self) -> None:
            """Sees nothing."""

        def stop(self) -> Taken:
            return Taken(0, 0)

    assert "1048576 bytes kept" in CHECKS["allocator's counter"](CPU)
    assert "and back" in CHECKS["swap space"](CPU)
    monkeypatch.setattr(run, "meter_for", lambda device: Blind())
    with pytest.raises(CheckFailed, match="0 and 0 bytes were counted"):
        CHECKS["allocator's counter"](CPU)
    monkeypatch.setattr(torch, "equal", lambda a, b: False)
    with pytest.raises(CheckFailed, match="is not what was sent"):
        CHECKS["swap space"](CPU)


def test_steps_that_differ_or_take_too_much_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    real = lowtide.train_step

    def over(*args: Any, **kwargs: Any) -> Any:
        step = real(*args, **kwargs)
        assert step.plan is not None
        object.__setattr__(step.plan, "budget", 1000)
        return step

    monkeypatch.setattr(run, "train_step", over)
    with pytest.raises(CheckFailed, match="bytes, the budget is 1000"):
        CHECKS["convolutions, SGD foreach"](CPU)
    monkeypatch.setattr(run, "train_step", real)
    monkeypatch.setattr(torch, "equal", lambda a, b: False)
    with pytest.raises(CheckFailed, match=r"after step 1 1 of 1 differ from eager's: .*the loss"):
        CHECKS["convolutions, SGD foreach"](CPU)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKS", {"swap space": CHECKS["swap space"]})
    out = tmp_path / "report.md"
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text() == result.stdout
    assert "1 of 1 checks passed on cpu" in result.stdout
    again = CliRunner().invoke(app, ["doctor", "--out", str(out)])
    assert isinstance(again.exception, InputError)
    assert "is there already" in str(again.exception)
    monkeypatch.setattr(run, "CHECKS", {"broken": broken})
    assert CliRunner().invoke(app, ["doctor", "--device", "cpu"]).exit_code == 1
    with pytest.raises(InputError, match="there is no device 'tpu' here"):
        device_called("tpu")


@pytest.mark.slow
def test_everything_works_here() -> None:
    diagnosis = examine(CPU, quiet)
    assert diagnosis.well, diagnosis.markdown()
