"""The examples run, stay inside their budgets, and train as without lowtide."""

import importlib.util
from pathlib import Path
from types import ModuleType

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
@pytest.mark.parametrize("name", ["plain_loop", "accelerate_loop"])
def test_a_loop(name: str) -> None:
    pytest.importorskip("accelerate" if name == "accelerate_loop" else "torch")
    train = example(name).train
    budget = live_bytes(CPU) + 6 * 2**20
    ours = train("lowtide", budget)
    assert_within(budget)
    assert ours == train("aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trainer() -> None:
    pytest.importorskip("accelerate")
    train = example("trainer").train
    budget = live_bytes(CPU) + 9_000_000
    ours, callback = train(budget)
    assert_within(budget)
    assert callback is not None
    theirs, _ = train(None)
    assert ours == theirs
