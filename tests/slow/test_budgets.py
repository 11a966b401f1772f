"""ResNet-152 and BERT-Base inside byte budgets: equal to eager, gradients included, and no byte over."""

from pathlib import Path
from typing import Any

import pytest
import torch

import lowtide
from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.forecast import Forecast
from lowtide.models import build
from lowtide.planning.policies import quiet
from lowtide.profiling.estimate import estimate
from lowtide.profiling.runs import run_plain
from lowtide.records.profile import Profile
from lowtide.records.step_plan import Allowed
from lowtide.records.vocabulary import Purpose
from lowtide.training.pipeline import provisional_step
from lowtide.training.planned import Variant, apply_plan, make_plan
from lowtide.training.swap_use import SwapUse
from tests.equality import Trained, differences, eager_step

pytestmark = pytest.mark.slow

SIZES = {"resnet152": 2, "bert-base": 2}
LEFT = (0.5, 0.12)
"""Shares of the bytes above the residents that are left; the last is at the floor or close to it."""


def _other(batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    other = {key: value.clone() for key, value in batch.items()}
    if "attention_mask" in other:
        other["attention_mask"][0, 40:] = 0
        other["input_ids"] = other["input_ids"].flip(1)
    else:
        other["pixel_values"] = torch.randn_like(other["pixel_values"])
    return other


@pytest.fixture(scope="module", params=SIZES)
def measured(request: pytest.FixtureRequest) -> tuple[Trained, lowtide.StepGraph, Profile, Any]:
    """Captured, and measured through a provisional plan, as `train_step` does."""
    training = build(request.param, SIZES[request.param])
    trained = Trained(training.model, torch.optim.Adam(training.model.parameters(), lr=1e-3, fused=True))
    if "attention_mask" in training.batch:
        training.batch["attention_mask"][0, 60:] = 0  # padded as the other is: a full mask is another step
    eager_step(trained, training.batch, None, 0)
    trained.optimizer.zero_grad()
    graph = lowtide.capture(trained.model, trained.optimizer, training.batch)
    guess = estimate(graph)
    budget = int(guess.resident_B + 0.4 * (guess.step_peak_B - guess.resident_B))
    profile = lowtide.profile(
        graph, runs=1, quick=True, through=provisional_step(graph, None, budget, seconds=6.0, say=quiet)
    )
    return trained, graph, profile, _other(training.batch)


@pytest.mark.parametrize("left", LEFT)
def test_a_budget_is_obeyed_and_nothing_else_changes(
    measured: tuple[Trained, lowtide.StepGraph, Profile, Any], left: float
) -> None:
    ours, graph, profile, other = measured
    theirs = ours.copy()
    budget = int(profile.resident_B + left * (profile.peak_B - profile.resident_B))
    try:
        _, plan = make_plan(Variant(graph, profile), None, budget, name="optimal", time_limit=10, say=quiet)
    except lowtide.BudgetInfeasible as infeasible:
        budget = int(1.005 * infeasible.floor)
        _, plan = make_plan(Variant(graph, profile), None, budget, name="optimal", time_limit=10, say=quiet)
    step = apply_plan(graph, plan)
    assert step.plan is not None
    assert {op.purpose for op in step.graph.ops} >= {Purpose.PROGRAM, Purpose.RECOMPUTE}
    for number, batch in enumerate((graph.example, other)):
        torch.manual_seed(number)
        ours.loss = step.graph(batch, keep_gradients=True)
        generator = torch.get_rng_state()
        assert torch.equal(generator, eager_step(theirs, batch, None, number))
        assert list(differences(ours, theirs)) == [], f"step {number}"
    ours.optimizer.zero_grad()
    meter, clock = meter_for(graph.device), clock_for(graph.device)
    peak = profile.resident_B + run_plain(step.graph, graph.form.tensors(other), clock, meter).peak
    assert peak <= budget
    assert peak == pytest.approx(step.predicted_peak, rel=0.01)


def test_train_step_from_the_outside() -> None:
    training = build("bert-base", 2)
    ours = Trained(training.model, torch.optim.AdamW(training.model.parameters(), lr=1e-3))
    theirs = ours.copy()
    step = lowtide.train_step(ours.model, ours.optimizer, training.batch, budget="85%", time_limit=8)
    for number in range(2):
        torch.manual_seed(number)
        ours.loss = step(training.batch)
        eager_step(theirs, training.batch, None, number)
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == [], f"step {number}"
        assert step.plan is not None
        assert step.measured_peak is not None
        assert step.measured_peak <= step.plan.budget


def test_values_leave_the_device_and_nothing_else_changes(
    measured: tuple[Trained, lowtide.StepGraph, Profile, Any], tmp_path: Path
) -> None:
    """Half of the bytes above the residents gone, by swaps alone: to disk and back."""
    ours, graph, profile, other = measured
    theirs = ours.copy()
    use = SwapUse("disk", tmp_path)
    lanes = use.lanes(graph)
    profile = use.measured(profile)
    budget = int(profile.resident_B + 0.5 * (profile.peak_B - profile.resident_B))
    _, plan = make_plan(
        Variant(graph, profile),
        None,
        budget,
        name="optimal",
        time_limit=10,
        say=quiet,
        lanes=lanes,
        allowed=Allowed(recompute=False, pack=False),
    )
    use.make_room([plan], graph.device)
    step = apply_plan(graph, plan)
    assert step.graph.swaps
    assert not any(op.purpose is Purpose.RECOMPUTE and not op.is_view for op in step.graph.ops)
    meter = meter_for(graph.device)
    for number, batch in enumerate((graph.example, other)):
        torch.manual_seed(number)
        if number:
            meter.start()
        ours.loss = step.graph(batch, keep_gradients=not number, space=use.space)
        peak = profile.resident_B + meter.stop().peak if number else 0
        generator = torch.get_rng_state()
        assert torch.equal(generator, eager_step(theirs, batch, None, number))
        if number:
            theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == [], f"step {number}"
        ours.optimizer.zero_grad()
    use.close()
    assert peak <= budget
    assert peak == pytest.approx(Forecast(plan).peak, rel=0.01)
    assert list(tmp_path.iterdir()) == []
