"""`train_step` keeps ReLU results as signs where that pays, or where nothing else fits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.errors import InputError
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.packing import sign_backward
from lowtide.records.step_plan import StepPlan
from lowtide.tracing.capture import Traced
from lowtide.training import pipeline
from lowtide.training.planned import Variant, make_plan
from tests.rewriting.test_rewrite import tiled
from tests.training.test_train_step import adam, assert_equal, setting
from tests.zoo import ZOO, Case, often


class Frozen(nn.Module):
    """Backward reads nothing but signs: the layers behind the first scale do not train."""

    def __init__(self, depth: int = 4, width: int = 64) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.layers = nn.ModuleList(nn.Linear(width, width).requires_grad_(False) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        x = x * self.scale
        for layer in self.layers:
            x = layer(x).relu()
        return (x * 2).sum()


def frozen() -> Case:
    """The model above with a batch that is larger than all of it."""
    torch.manual_seed(0)
    return Case(Frozen(), torch.randn(512, 64), torch.randn(512, 64))


@pytest.fixture
def only_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made for the variant with signs, however fast the other one is."""

    def with_signs(plain: Variant, signs: Variant | None, budget: int, **options: Any) -> tuple[StepGraph, StepPlan]:
        assert signs is not None
        return make_plan(signs, None, budget, **options)

    monkeypatch.setattr(pipeline, "make_plan", with_signs)


@pytest.mark.slow
@pytest.mark.usefixtures("only_signs")
@pytest.mark.parametrize("name", often(["encoder", "t5"], ["encoder"]))
def test_budgets_with_signs(name: str) -> None:
    case = tiled(ZOO[name](), 8)
    ours, theirs = setting(case)
    for budget in ("85%", "65%"):
        step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, time_limit=1)
        assert step.plan is not None
        assert step.plan.signs
        assert any(op.node.target is sign_backward for op in step.graph.ops)
        assert_equal(case, ours, theirs, step, calls=2)
        assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("only_signs")
def test_accumulation_with_signs() -> None:
    case = tiled(ZOO["encoder"](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "80%", clip_grad_norm=0.1, accumulate=3, time_limit=1
    )
    assert_equal(case, ours, theirs, step, calls=6, accumulate=3, clip=0.1)


def floor_of(case: Case) -> int:
    """The least peak that a step can reach."""
    with pytest.raises(lowtide.BudgetInfeasible) as caught:
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, 1000, time_limit=2)
    return caught.value.floor


def test_a_budget_that_only_signs_can_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    case = frozen()
    with_signs = floor_of(case)
    with monkeypatch.context() as patched:
        patched.setattr(Traced, "signs", 0)
        without = floor_of(case)
        budget = (with_signs + without) // 2
        with pytest.raises(lowtide.BudgetInfeasible):
            lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget, time_limit=2)
    assert with_signs < 0.85 * without
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, time_limit=2)
    assert step.plan is not None
    assert len(step.plan.signs) == 4
    assert_equal(case, ours, theirs, step)
    assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.02)


def test_the_plan_says_that_signs_are_kept() -> None:
    case = frozen()
    step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, int(1.05 * floor_of(case)))
    step(case.batch)
    plan = step.plan
    assert plan is not None
    assert "signs             4 ReLU results kept as signs, in 16.0 KiB instead of 512.0 KiB" in step.explain()
    packed = [fate for fate in plan.fates if fate.what == "packed"]
    assert len(packed) == 4
    assert {plan.problem.storages[fate.storage].bytes for fate in packed} == {512 * 64 * 4}
    overhead = Forecast(plan).overhead
    assert overhead >= plan.bound - 1e-9
    shares = (plan.recompute_time + plan.pack_time) / plan.base_time
    assert overhead == pytest.approx(shares, abs=1e-6)


def test_the_captured_step_stays_as_it_is_where_it_fits() -> None:
    case = frozen()
    for budget in (None, "100%"):
        step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget, time_limit=1)
        assert not step.graph.signs
        assert step.plan is None or not (step.plan.rewritten or step.plan.signs)


@pytest.mark.slow
def test_a_share_is_of_the_captured_step_and_the_plan_is_the_faster_one() -> None:
    case = frozen()
    whole = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "100%", time_limit=1).plan
    half = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "50%", time_limit=1).plan
    assert whole is not None
    assert half is not None
    assert half.budget == pytest.approx(whole.budget / 2, rel=0.05)
    assert half.unplanned_peak == pytest.approx(whole.unplanned_peak, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["signs", "plain"])
def test_a_saved_plan_loads_for_either_variant(wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = frozen()
    ours, theirs = setting(case)
    path = tmp_path / "plan.json"
    with monkeypatch.context() as patched:
        if wanted == "plain":
            patched.setattr(Traced, "signs", 0)
        budget = int(1.05 * floor_of(case))
        first = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, time_limit=2)
    first.save_plan(path)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, plan=path)
    assert step.plan == first.plan
    assert bool(step.graph.signs) == (wanted == "signs")
    assert_equal(case, ours, theirs, step)
    other = Case(Frozen(depth=5), case.batch, case.other)
    with pytest.raises(InputError, match="another configuration"):
        lowtide.train_step(other.model, adam(other.model), other.batch, None, budget, plan=path)


@pytest.mark.parametrize("break_it", often(["inverted", "forgotten"], 1))
def test_broken_bits_are_noticed(break_it: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = frozen()
    ours, theirs = setting(case)
    budget = int(1.05 * floor_of(case))
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, budget, time_limit=2)
    wrong: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "inverted": lambda gradient, bits: sign_backward(gradient, ~bits),
        "forgotten": lambda gradient, bits: gradient.clone(),
    }
    scope = step.graph.program.run.__globals__
    monkeypatch.setitem(scope, "lowtide_sign_backward_default", wrong[break_it])
    with pytest.raises(AssertionError, match="call 0"):
        assert_equal(case, ours, theirs, step, calls=1)
