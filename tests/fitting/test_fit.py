"""What is said of a step that never ran is what it takes when it runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.fitting.devices import find_device
from lowtide.fitting.fit import Setting
from lowtide.fitting.limits import devices_needed, largest
from lowtide.fitting.record import Fit
from lowtide.fitting.report import draw, table
from lowtide.fitting.sketch import Sizes, Sketch, sketch
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import A_CPU
from tests.zoo import ZOO, often


def net(batch: int, width: int = 64) -> tuple[nn.Module, Tensor]:
    blocks = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1))]
    return nn.Sequential(*blocks, nn.Linear(width, 1)), torch.ones(batch, width)


def mean(model: nn.Module, batch: Tensor) -> Any:
    return model(batch).mean()


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), fused=True)


@pytest.mark.parametrize("name", often(always=["resnet"]))
def test_bytes_are_those_that_a_real_step_takes(name: str) -> None:
    """But for workspaces, which no trace can know: those are left out on both sides."""
    case = ZOO[name]()
    optimizer = torch.optim.AdamW(case.model.parameters())
    graph = lowtide.capture(case.model, optimizer, case.batch, case.loss)
    with torch.device("meta"):
        without = ZOO[name]().model
    drawn = sketch(without, lambda m: torch.optim.AdamW(m.parameters()), case.batch, case.loss, A_CPU)
    assert [storage.bytes for storage in drawn.plain.graph.storages] == [storage.bytes for storage in graph.storages]
    assert [op.op for op in drawn.plain.graph.ops] == [op.op for op in graph.ops]


def test_the_users_model_and_optimizer_stay_on_meta() -> None:
    with torch.device("meta"):
        model, batch = net(8)
    optimizer = torch.optim.AdamW(model.parameters())
    before = list(model.parameters())
    fit = lowtide.fit(model, optimizer, batch, mean, device="h100")
    assert all(a is b and a.is_meta for a, b in zip(model.parameters(), before, strict=True))
    assert all(a is b for a, b in zip(optimizer.param_groups[0]["params"], before, strict=True))
    assert not optimizer.state
    assert fit.fits
    assert fit.trains
    assert fit.plan is None
    assert fit.samples == 8
    assert sum(part.bytes for part in fit.parts) == fit.peak_B


def test_also_after_a_failure() -> None:
    with torch.device("meta"):
        model, batch = net(8)
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(lowtide.CaptureError):
        lowtide.fit(model, optimizer, batch, lambda m, b: m(b).mean().item(), device="h100")
    assert all(p.is_meta for p in (*model.parameters(), *optimizer.param_groups[0]["params"]))


@pytest.mark.slow
def test_a_plan_where_it_does_not_fit(tmp_path: Path) -> None:
    with torch.device("meta"):
        model, batch = net(4096)
    fit = lowtide.fit(model, torch.optim.SGD(model.parameters(), lr=0.1), batch, mean, device="l4", budget="60%")
    assert not fit.fits
    assert fit.trains
    assert fit.plan is not None
    assert fit.plan.peak_B <= fit.budget_B < fit.peak_B
    assert fit.plan.overhead >= fit.plan.bound >= 0
    fit.save(tmp_path / "fit.json")
    assert Fit.load(tmp_path / "fit.json") == fit
    draw(fit, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 5000
    assert table([fit, fit]).row_count > 8


def test_a_budget_that_nothing_meets_says_what_would() -> None:
    model, batch = net(64)
    fit = lowtide.fit(model, adamw(model), batch, mean, device="h100", budget=1000, time_limit=1.0)
    assert not fit.trains
    assert fit.least_B is not None
    assert fit.least_B > 1000
    assert fit.samples_per_second is None


def test_a_budget_above_the_device_is_refused() -> None:
    model, batch = net(8)
    with pytest.raises(lowtide.InputError, match="above the"):
        lowtide.fit(model, adamw(model), batch, mean, device="l4", budget="30GiB")


@pytest.mark.slow
def test_the_largest_batch_is_the_last_that_fits() -> None:
    device, rates = find_device("h100"), A_CPU

    def make(samples: int) -> Any:
        with torch.device("meta"):
            model, batch = net(samples)
        return sketch(model, adamw, batch, mean, rates)

    def peak(samples: int) -> int:
        late = make(samples).late
        return simulate(late.problem, late.problem.program).peak

    most = largest(make, device, peak(48), Setting(), time_limit=0.1)
    assert most.as_it_is is not None
    assert most.planned is not None
    assert peak(most.as_it_is) <= peak(48)
    assert 47 <= most.as_it_is <= 48
    assert most.planned >= most.as_it_is


@pytest.mark.parametrize("units", often([5, 1, 8], 1))
def test_steps_of_any_size_are_known_from_three(units: int) -> None:
    """Also where bytes grow as a square, as attention with a mask does."""

    def make(units: int) -> Sketch:
        with torch.device("meta"):
            model, batch = nn.Sequential(nn.Linear(8, 8)), torch.ones(2, 16 * units, 8)
        return sketch(model, adamw, batch, lambda m, b: (m(b) @ m(b).mT).softmax(-1).mean(), A_CPU)

    known, real = Sizes(make).at(units).plain.profile, make(units).plain.profile
    assert [s.bytes for s in known.storages] == [s.bytes for s in real.storages]
    assert all(op.runtime_ms >= 0 for op in known.ops)


def test_the_fewest_devices() -> None:
    with torch.device("meta"):
        model, batch = net(8, 512)
    device = find_device("h100")
    drawn = sketch(model, adamw, batch, mean, device.rates, gpu=True)

    def peak(world: int) -> int:
        rank, order = Setting(world).of(drawn, device)
        return simulate(rank.problem, order).peak

    most = devices_needed(drawn, device, peak(8), Setting(), time_limit=0.5)
    assert most.as_it_is == 8
    assert most.planned in (1, 2, 4, 8)
    none = devices_needed(drawn, device, 1 << 10, Setting(), time_limit=0.5)
    assert none.as_it_is is none.planned is None


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Any:
        x = self.projection(x).view(2, 1, 256, 16)
        return nn.functional.scaled_dot_product_attention(x, x, x, None, 0.1).mean()


def test_attention_with_dropout_keeps_no_probabilities_on_a_gpu() -> None:
    with torch.device("meta"):
        model, batch = Attention(), torch.ones(2, 256, 16)
    peaks = {}
    for gpu in (False, True):
        late = sketch(model, adamw, batch, None, A_CPU, gpu=gpu).late
        peaks[gpu] = simulate(late.problem, late.problem.program).peak
    probabilities = 2 * 256 * 256 * 4
    assert peaks[True] < probabilities < peaks[False]


def test_an_optimizer_that_leaves_the_choice_is_foreach_on_a_gpu() -> None:
    with torch.device("meta"):
        model, batch = net(8)
    optimizer = torch.optim.AdamW(model.parameters())
    assert "foreach" in lowtide.fit(model, optimizer, batch, mean, device="l4").optimizer
    assert optimizer.param_groups[0]["foreach"] is None
