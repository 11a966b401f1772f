"""ResNet-152 and BERT-Base themselves: equal to eager over several steps, and measured as predicted."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import lowtide
from lowtide.graph.step_graph import StepGraph
from lowtide.models import build
from tests.equality import Trained, differences, eager_step
from tests.graph.test_liveness import check_against_brute_force

pytestmark = pytest.mark.slow

SIZES = {"resnet152": 2, "bert-base": 2}


@dataclass
class Captured:
    """A reference model with a captured step and a second batch of the same shapes."""

    trained: Trained
    graph: StepGraph
    batch: Any
    other: Any


@pytest.fixture(scope="module", params=SIZES)
def captured(request: pytest.FixtureRequest) -> Captured:
    """Captured once for all tests of the model."""
    training = build(request.param, SIZES[request.param])
    other = {key: value.clone() for key, value in training.batch.items()}
    if "attention_mask" in other:
        assert bool(other["attention_mask"].all()), "captured with a mask of ones"
        other["attention_mask"][0, 40:] = 0
        other["input_ids"] = other["input_ids"].flip(1)
    else:
        other["pixel_values"] = torch.randn_like(other["pixel_values"])
    other["labels"] = 1 - other["labels"].clamp(0, 1)
    trained = Trained(training.model, torch.optim.Adam(training.model.parameters(), lr=1e-3, fused=True))
    graph = lowtide.capture(trained.model, trained.optimizer, training.batch)
    return Captured(trained, graph, training.batch, other)


def test_it_trains_as_eager_does(captured: Captured) -> None:
    ours = captured.trained
    theirs = ours.copy()
    for step in range(3):
        batch = captured.other if step == 1 else captured.batch
        torch.manual_seed(step)
        ours.loss = captured.graph(batch, keep_gradients=True)
        generator = torch.get_rng_state()
        assert torch.equal(generator, eager_step(theirs, batch, None, step))
        assert list(differences(ours, theirs)) == [], f"step {step}"


def test_brute_force_agrees(captured: Captured) -> None:
    check_against_brute_force(captured.graph)


def test_the_timeline_peaks_where_a_plain_run_does(captured: Captured) -> None:
    profile = lowtide.profile(captured.graph, runs=1)
    assert profile.peak_B == pytest.approx(profile.step_peak_B, rel=0.01)
    assert profile.step_peak_B > profile.resident_B
    assert all(op.peak_mem_B >= op.active_mem_B >= profile.resident_B for op in profile.ops)


def _high_water_mark() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0])


def test_profiling_needs_no_more_memory_than_training(captured: Captured) -> None:
    """By the operating system's word: the highest the process ever stood, eager training included."""
    captured.trained.optimizer.zero_grad(set_to_none=True)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    eager_step(captured.trained, captured.batch, None, 0)
    captured.trained.optimizer.zero_grad(set_to_none=True)
    captured.trained.loss = None
    trained = _high_water_mark()
    lowtide.profile(captured.graph, runs=1)
    assert _high_water_mark() <= 1.02 * trained
