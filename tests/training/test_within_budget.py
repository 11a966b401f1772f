"""What a step takes is at most the budget, to the byte, and whoever is over it hears of it."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import lowtide
from lowtide.device.meter import Meter, ShimMeter, Taken
from lowtide.device.shim import compiler
from lowtide.kernels import packing
from lowtide.kernels.packing import unpack_bits
from lowtide.kernels.replay import generator_bytes
from lowtide.profiling.packs import pack_records
from lowtide.records.profile import PackRecord
from lowtide.training.train_step import TrainStep
from lowtide.training.undo import Undo, undo_bytes
from tests.zoo import often

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler on this machine")


class Noisy(nn.Module):
    """Each layer draws a matrix that is larger than all else: the step is at its peak while it draws."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.ones(1, 64))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.layers):
            x = torch.tanh(x @ torch.empty(64, 64).uniform_() + self.weight)
        return x


def deep(layers: int = 12) -> nn.Module:
    """Linear layers that are larger than what they make."""
    return nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(64, 64), nn.Tanh())))


def squares(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()  # type: ignore[no-any-return]


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def made(
    model: nn.Module,
    budget: int | str | None,
    batch: Tensor,
    make: Callable[[nn.Module], Optimizer] = sgd,
    **options: Any,
) -> TrainStep:
    """A step; the planner's time does not matter here."""
    return lowtide.train_step(
        model, make(model), batch, squares, budget, time_limit=1, progress=False, measure="before", **options
    )


def floor_of(model: nn.Module, batch: Tensor, **options: Any) -> int:
    """The least peak that is found."""
    with pytest.raises(lowtide.BudgetInfeasible) as caught:
        made(model, "1%", batch, **options)
    return caught.value.floor


@pytest.mark.parametrize("accumulate", often([3, 1], 1))
def test_the_state_that_a_replay_goes_back_to_counts(accumulate: int, tmp_path: Path) -> None:
    """5,056 bytes while a random op runs again, which were no part of the prediction."""
    batch = torch.randn(1, 64)
    budget = floor_of(Noisy(), batch, accumulate=accumulate) + 512
    step = made(Noisy(), budget, batch, accumulate=accumulate)
    step.save_plan(tmp_path / "plan.json")
    for each in (step, made(Noisy(), None, batch, accumulate=accumulate, plan=tmp_path / "plan.json")):
        peaks = []
        for _ in range(2 * accumulate):
            each(batch)
            assert each.measured_peak is not None
            peaks.append(each.measured_peak)
        assert max(peaks) == each.predicted_peak
        assert max(peaks) <= budget


def test_foreach_holds_the_temporaries_of_all_parameters() -> None:
    """At the end of a step that fits as it is, and wherever updates run together in one that is rewritten."""
    batch = torch.randn(8, 64)

    def foreach(model: nn.Module) -> Optimizer:
        return torch.optim.Adam(model.parameters(), foreach=True)

    for budget in ("100%", "90%"):
        step = made(deep(), budget, batch, foreach)
        assert step.plan is not None
        for _ in range(2):
            step(batch)
            assert step.measured_peak is not None
            assert step.measured_peak <= step.plan.budget
        assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.01)


@pytest.mark.slow
def test_tables_for_unpacking_are_made_before_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan from a file is not measured first, so that the first step would make them inside the budget."""
    measured = sys.modules[lowtide.profile.__module__]

    def free(*given: Any) -> tuple[PackRecord, ...]:
        return tuple(replace(pack, pack_ms=0.0, unpack_ms=0.0) for pack in pack_records(*given))

    monkeypatch.setattr(measured, "pack_records", free)  # so that the plan packs, however busy the machine is

    def model() -> nn.Module:
        layers = (layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Dropout(0.5), nn.Tanh()))
        return nn.Sequential(*layers)

    batch = torch.randn(64, 64)
    step = made(model(), floor_of(model(), batch) + 20000, batch)
    assert any(op.node.target is unpack_bits for op in step.graph.ops)
    step.save_plan(tmp_path / "plan.json")
    packing._tables.clear()
    again = made(model(), None, batch, plan=tmp_path / "plan.json")
    again(batch)
    assert again.measured_peak == again.predicted_peak


def test_a_workspace_that_is_in_the_way_is_named() -> None:
    """Convolutions of doubles unfold their input, which is many times its size."""
    model = nn.Sequential(nn.Conv2d(8, 8, 5, padding=2), nn.Flatten()).double()
    batch = torch.randn(4, 8, 24, 24).double()
    workspace = r"the largest in the way: the workspace of convolution\w*, aten\.convolution\S* \(0, .*:\d+\)"
    with pytest.raises(lowtide.BudgetInfeasible, match=workspace) as caught:
        made(model, "50%", batch)
    assert caught.value.workspace[1] > 10 * batch.nbytes


class Counting:
    """A meter as CUDA's is: measuring is not free. Counts how often it is started, which resets the statistics."""

    name, free = "counting", False

    def __init__(self, device: torch.device) -> None:
        self.starts = 0
        self._inner = ShimMeter()

    def start(self) -> None:
        """Begin to watch."""
        self.starts += 1
        self._inner.start()

    def stop(self) -> Taken:
        """What happened."""
        return self._inner.stop()


def metered(monkeypatch: pytest.MonkeyPatch, step: Callable[[], TrainStep], meter: Meter) -> TrainStep:
    """A step that is measured by `meter`."""
    monkeypatch.setattr(sys.modules[TrainStep.__module__], "meter_for", lambda device: meter)
    return step()


@pytest.mark.parametrize(("accumulate", "kinds"), often([(4, 3), (2, 2), (1, 1)], 1))
def test_where_measuring_is_not_free_the_first_of_each_kind_is_measured(
    accumulate: int, kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = torch.randn(8, 64)
    meter = Counting(torch.device("cpu"))
    step = metered(monkeypatch, lambda: made(deep(3), 10**8, batch, accumulate=accumulate), meter)
    for _ in range(accumulate):
        step(batch)
    assert meter.starts == kinds
    for _ in range(2 * accumulate):
        step(batch)
        assert step.measured_peak is None
    assert meter.starts == kinds
    step(torch.randn(4, 64))  # another case
    assert meter.starts == kinds + 1


class Said:
    """A meter that is free and says what it is told to say."""

    name, free = "said", True
    peak = 0

    def start(self) -> None:
        """Begin to watch."""

    def stop(self) -> Taken:
        """What happened."""
        return Taken(self.peak, 0)


def test_every_step_of_every_kind_is_watched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Over the budget is said once for each kind, however late it comes; a wrong prediction once, at the first."""
    batch = torch.randn(8, 64)
    meter = Said()
    step = metered(monkeypatch, lambda: made(deep(3), 10**8, batch, accumulate=3, sentinel=False), meter)
    caplog.clear()
    for _ in range(6):
        step(batch)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    caplog.clear()
    meter.peak = 10**9
    for _ in range(6):
        step(batch)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3


def test_what_undoing_a_step_holds_is_what_is_set_aside_for_it() -> None:
    """Copies of the buffers that a step changes, and the state of the generator."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    batch = torch.randn(8, 4)
    graph = lowtide.capture(model, sgd(model), batch, squares)
    meter = ShimMeter()
    meter.start()
    undo = Undo(graph, batch, on_device=True)
    assert meter.stop() == Taken(undo_bytes(graph), undo_bytes(graph))
    assert undo_bytes(graph) > generator_bytes(graph.device)
    before = torch.get_rng_state()
    torch.rand(1)
    undo()
    assert torch.equal(torch.get_rng_state(), before)
