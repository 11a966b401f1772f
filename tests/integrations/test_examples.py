"""The examples run, stay inside their budgets, and train as without lowtide."""

import importlib.util
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lowtide.compiling.loop import Loop, loops
from lowtide.device.live import live_bytes

EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = torch.device("cpu")


def example(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def assert_within(budget: int) -> None:
    loop: Loop = next(reversed(loops.values()))
    assert any(graph.is_rewritten for graph in loop.graphs())
    assert loop.measured_peak is not None
    assert loop.measured_peak <= budget


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


@pytest.mark.slow
def test_a_plain_loop() -> None:
    train = example("plain_loop").train
    budget = live_bytes(CPU) + 6 * 2**20
    ours = train("lowtide", budget)
    assert_within(budget)
    assert ours == train("aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_a_scaler(dtype: torch.dtype) -> None:
    """Equal to `aot_eager`: under autocast that differs from eager by itself."""
    train = example("precision").train
    budget = live_bytes(CPU) + 12 * 2**20
    ours = train("lowtide", budget, dtype)
    assert_within(budget)
    assert ours == train("aot_eager", dtype=dtype)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("accelerate_loop", 6 * 2**20),
        ("accumulation", 6 * 2**20),
        ("lightning_loop", 8 * 2**20),
        ("peft_lora", 7_000_000),
        ("sft", 78_000_000),  # TRL's own loss takes 64 MiB of it between forward and backward
        pytest.param(
            "timm_model",
            200 * 2**20,
            marks=pytest.mark.skipif(
                importlib.util.find_spec("timm") is None,
                reason="timm imports torchvision, of which there is no build for this torch here",
            ),
        ),
    ],
)
def test_a_framework(name: str, room: int) -> None:
    train = example(name).train
    budget = live_bytes(CPU) + room
    ours = train(budget)
    assert_within(budget)
    if name == "accelerate_loop":
        _forget_the_accelerator()
    assert ours == train(None)


def _forget_the_accelerator() -> None:
    """Accelerate keeps what the first Accelerator of a process was given."""
    state: Any = importlib.import_module("accelerate.state")
    state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trainer(capsys: pytest.CaptureFixture[str]) -> None:
    train = example("trainer").train
    budget = live_bytes(CPU) + 9_000_000
    ours, callback = train(budget)
    assert_within(budget)
    assert "lowtide: a step takes" in capsys.readouterr().out
    assert callback is not None
    theirs, _ = train(None)
    assert ours == theirs


def test_own_checkpoints_are_left_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    train = example("own_checkpoints").train
    with caplog.at_level(logging.WARNING, logger="lowtide"):
        ours = train(2**30)
    said = [record.getMessage() for record in caplog.records if "torch.utils.checkpoint" in record.getMessage()]
    assert len(said) == 1
    assert ours == train(None)
