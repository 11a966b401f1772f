"""The doctor: its report tells what is here and what is wrong, on a GPU that is faked too, whole or broken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.device.meter import Taken
from lowtide.errors import InputError
from lowtide.experiments.doctor import checks, run
from lowtide.experiments.doctor.advice import ADVICE, advice
from lowtide.experiments.doctor.checks import CHECKS, CheckFailed
from lowtide.experiments.doctor.run import device_called, examine
from lowtide.training.train_step import TrainStep, train_step
from tests.device.fake_gpu import FakeGpu

CPU = torch.device("cpu")


def broken(device: torch.device) -> str:
    raise CheckFailed("the bytes | are gone")


def quiet(message: str) -> None:
    """Says nothing."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return FakeGpu(monkeypatch)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks' own models, with fewer layers: a check is no other for it."""
    convnet, encoder = checks._convnet, checks._encoder
    monkeypatch.setattr(checks, "_convnet", lambda: convnet(2))
    monkeypatch.setattr(checks, "_encoder", lambda: encoder(1))


def once_planned(monkeypatch: pytest.MonkeyPatch, then: Callable[[TrainStep], object]) -> None:
    """What `then` breaks is whole while a step is measured and planned."""

    def make(*args: Any, **kwargs: Any) -> TrainStep:
        step = train_step(*args, **kwargs)
        then(step)
        return step

    monkeypatch.setattr(checks, "train_step", make)


QUICK = {
    "eager repeats itself": "gradients of two models, twice",
    "allocator's counter": "1048576 bytes kept",
    "random numbers replayed": "draws made again",
    "swap space": "6291528 bytes to host, pinned and back",
    "a step whose activations leave": "bytes; a step takes",
    "convolutions, SGD foreach": "3 steps equal; ",
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [*list(QUICK)[:-1], pytest.param(list(QUICK)[-1], marks=pytest.mark.slow)])
def test_a_gpu_that_is_whole_passes(gpu: FakeGpu, name: str) -> None:
    assert QUICK[name] in CHECKS[name](gpu.device)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("fault", "name", "said"),
    [
        ("keeps_peak", "allocator's counter", r"4 MiB and then 1 MiB were taken, but \d+ and 1048576 bytes were"),
        ("draws_on", "random numbers replayed", r"after step 1 1 of 1 differ from eager's: \['the generator'\]"),
        ("loses_copies", "swap space", "what came back from host, pinned is not what was sent"),
        ("loses_copies", "a step whose activations leave", r"after step 1 \d+ of \d+ differ from eager's: \['0.weight"),
    ],
)
def test_a_gpu_that_is_broken_is_seen(gpu: FakeGpu, fault: str, name: str, said: str) -> None:
    before = torch.empty(2**25)  # a peak of long ago
    del before
    setattr(gpu, fault, True)
    with pytest.raises(CheckFailed, match=said):
        CHECKS[name](gpu.device)


@pytest.mark.usefixtures("small")
def test_values_that_stay_where_they_are_although_they_were_sent_away(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "meter_for", lambda device: Blind(2**20))
    with pytest.raises(CheckFailed, match=r"bytes were sent away, but the step takes 1048576 bytes, 1048576 without"):
        CHECKS["a step whose activations leave"](gpu.device)


class Blind:
    """Counts the same whatever happens."""

    name, free = "blind", True

    def __init__(self, size: int) -> None:
        self.size = size

    def start(self) -> None:
        """Sees nothing."""

    def stop(self) -> Taken:
        return Taken(self.size, self.size)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("another bit", r"after step 1 \d+ of \d+ differ from eager's: \['0.weight"),
        ("more bytes", r"step 1 took \d+ bytes, the budget is \d+"),
        pytest.param("fewer bytes", r"a step took \d+ bytes, predicted were \d+: -\d+\.\d %", marks=pytest.mark.slow),
        pytest.param("no count", "no step's peak was measured", marks=pytest.mark.slow),
    ],
)
def test_training_that_is_wrong_is_seen(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, fault: str, said: str) -> None:
    class Drifting(TrainStep):
        def __call__(self, batch: Any) -> Any:
            result = super().__call__(batch)
            weight = next(self.model.parameters())
            weight.data.view(-1)[0] = torch.nextafter(weight.data.view(-1)[0], torch.tensor(9.0))
            return result

    class Unmeasured(TrainStep):
        @property
        def measured_peak(self) -> int | None:
            return None

    once_planned(
        monkeypatch,
        {
            "another bit": lambda step: setattr(step, "__class__", Drifting),
            "more bytes": lambda step: setattr(gpu, "share", 1.5),
            "fewer bytes": lambda step: setattr(gpu, "share", 0.5),
            "no count": lambda step: setattr(step, "__class__", Unmeasured),
        }[fault],
    )
    with pytest.raises(CheckFailed, match=said):
        CHECKS["convolutions, SGD foreach"](gpu.device)


@pytest.mark.usefixtures("small")
def test_one_run_tells_all_that_is_wrong(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that fail, and a card that does not say its name, keep nothing else from being told."""
    names = ("allocator's counter", "swap space", "random numbers replayed")
    monkeypatch.setattr(run, "CHECKS", {"first": broken} | {name: CHECKS[name] for name in names} | {"last": broken})
    monkeypatch.delattr(torch.cuda, "get_device_name")
    monkeypatch.setenv("PATH", "")
    gpu.loses_copies = gpu.draws_on = True
    diagnosis = examine(gpu.device, quiet)
    assert [finding.name for finding in diagnosis.findings if finding.passed] == ["allocator's counter"]
    report = diagnosis.markdown()
    assert report.startswith("# lowtide doctor: 1 of 6 checks passed on cpu\n\nFailed: GPU, first, swap space, random")
    for line in (
        "| allocator | native |",
        "| memory of the device | 80.0 GiB |",
        "| bytes are counted by | torch.cuda.memory_stats |",
        "| GPU | not known: see below |",
        "| free memory | 79.0 GiB |",
        "| NVIDIA driver | not told: there is no nvidia-smi here |",
        "\n- **swap space**: Values that leave the device come back damaged",
        "\n- **last**: lowtide cannot do this here. Please open an issue with this report.",
        "| last | **failed** | 0.0 | CheckFailed: the bytes / are gone |",
        "is not what was sent |",
    ):
        assert line in report
    assert report.count("\n## ") == report.count("\nTraceback (most recent call last):\n") == 5
    assert "test_doctor.py" in report.partition("## last")[2]


def test_every_check_has_its_advice() -> None:
    assert list(ADVICE) == list(CHECKS)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("swap space", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 MiB", "another process holds it"),
        (
            "allocator's counter",
            "AcceleratorError: CUDA error: no kernel image is available",
            "no kernels for this card",
        ),
        ("GPU", "RuntimeError: The NVIDIA driver on your system is too old", "The NVIDIA driver is too old or too new"),
        ("swap space", "AcceleratorError: CUDA error: an illegal memory access", "CUDA_LAUNCH_BLOCKING=1"),
        ("convolutions, AdamW", "CheckFailed: after step 1 2 of 9 differ from eager's: []", "not the same as in eager"),
        ("bfloat16 autocast", "CheckFailed: step 1 took 9 bytes, the budget is 8", "takes more than its budget"),
        ("bfloat16 autocast", "CheckFailed: a step took 9 bytes, predicted were 8", "Peaks are predicted wrong"),
        ("bfloat16 autocast", "CheckFailed: no step's peak was measured", "Nothing measures peaks here"),
        ("convolutions, AdamW", "BudgetInfeasible: no plan was found", "something else using the device"),
        ("convolutions, AdamW", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", "cuDNN refused"),
        ("random numbers replayed", "CheckFailed: 1 of 1 differ from eager's", "Dropout that is computed again"),
        ("swap space", "SwapError: what came back is not what was sent", 'Train with swap="off"'),
        ("eager repeats itself", "CheckFailed: 1 of 9 differ from eager's", "PyTorch itself gives other bits"),
    ],
)
def test_a_failure_says_what_to_do(name: str, error: str, said: str) -> None:
    assert said in advice(name, f"{error}\nTraceback: driver, CUDA error, out of memory")


@pytest.mark.usefixtures("small")
def test_eager_that_does_not_repeat_itself_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = iter(range(1, 10))
    honest = checks._loss
    monkeypatch.setattr(checks, "_loss", lambda model, batch: honest(model, batch) * (1 + next(noise) / 100))
    with pytest.raises(CheckFailed, match="differ from eager's"):
        CHECKS["eager repeats itself"](CPU)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_plan_that_swaps_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_swapping", train_step)
    with pytest.raises(CheckFailed, match=r"the plan for \d+ bytes sends nothing away, and can do nothing else"):
        CHECKS["training that swaps"](CPU)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 570.86.10; echo 570.86.10", "570.86.10"),
        ("echo no devices were found; exit 6", "not told: nvidia-smi ended with 6: no devices were found"),
    ],
)
def test_the_driver(script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run._driver().strip() == said


def test_the_device_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_called(None) == device_called("cpu") == CPU
    for name in ("tpu", "cuda", "cuda:0", "cpu:1"):
        with pytest.raises(InputError, match=f"there is no device '{name}' here: torch sees cpu$"):
            device_called(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_called(None) == device_called("cuda") == torch.device("cuda")
    assert device_called("cuda:1") == torch.device("cuda:1")
    with pytest.raises(InputError, match="there is no device 'cuda:2' here: torch sees cpu, cuda:0, cuda:1"):
        device_called("cuda:2")


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
    failed = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--out", str(out), "--force"])
    assert failed.exit_code == 1
    assert "CheckFailed: the bytes / are gone" in out.read_text()


@pytest.mark.slow
def test_everything_works_here() -> None:
    diagnosis = examine(CPU, quiet)
    assert diagnosis.well, diagnosis.markdown()


@pytest.mark.slow
def test_everything_works_on_a_gpu_that_is_whole(gpu: FakeGpu) -> None:
    diagnosis = examine(gpu.device, quiet)
    assert diagnosis.well, diagnosis.markdown()
    assert "| GPU | A card, (9, 0) |" in diagnosis.markdown()
