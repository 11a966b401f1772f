"""Batches of other shapes: the decisions at hand are taken over, equal to eager, in the budget, nothing measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.errors import InputError
from lowtide.training import pipeline
from lowtide.training.train_step import TrainStep
from tests.equality import Trained, differences
from tests.rewriting.test_rewrite import tiled
from tests.training.test_train_step import adam, deep_convnet, eager_micro_step, setting
from tests.zoo import ZOO, Case, often
from tests.zoo.models import images


@contextmanager
def nothing_measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is measured here is an error."""

    def measure(*_: Any, **__: Any) -> None:
        raise AssertionError("measured")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "profile", measure)
        yield


def trains_as_eager(
    case: Case, ours: Trained, theirs: Trained, step: TrainStep, batches: list[Any], **how: Any
) -> None:
    """One step on each batch; all is equal, the peak inside the budget, the generator where eager leaves it."""
    for number, batch in enumerate(batches):
        torch.manual_seed(number)
        ours.loss = step(batch)
        generator = torch.get_rng_state()
        eager_micro_step(theirs, case, batch, number, place=number % how.get("accumulate", 1), **how)
        assert torch.equal(generator, torch.get_rng_state())
        assert list(differences(ours, theirs)) == [], f"batch {number}"
        assert step.plan is not None
        assert step.measured_peak is not None
        assert step.measured_peak <= step.plan.budget


def test_other_batch_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "60%", time_limit=1)
    assert step.plan is not None
    budget = step.plan.budget
    others = [images(size, 12) for size in (15, 12, 4, 13)]
    with nothing_measured(monkeypatch):
        trains_as_eager(case, ours, theirs, step, [case.batch, *others[:2], case.batch, *others])
        assert step.profile is None
        assert step.plan.budget == budget
        step(others[0])
        assert step.plan.rewritten
        assert "another shape" in step.plan.note
        assert "another shape" in str(step)
        step(others[2])
        assert not step.plan.rewritten or step.plan.note == "only updates run early"
    assert len(step._prepared) == 5


@pytest.mark.parametrize("name", often(["bert", "encoder", "lstm", "qwen2", "t5", "distilbert"], ["encoder"]))
def test_other_sequence_lengths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = tiled(ZOO[name](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "75%", time_limit=1)
    longest = max(x.shape[1] for x in torch.utils._pytree.tree_leaves(case.batch) if x.dim() > 1)

    def cut(x: torch.Tensor, length: int) -> torch.Tensor:
        return x[:, -length:].contiguous() if x.dim() > 1 and x.shape[1] == longest else x

    others = [torch.utils._pytree.tree_map(lambda x, n=n: cut(x, n), case.batch) for n in (longest - 1, longest // 2)]
    with nothing_measured(monkeypatch):
        trains_as_eager(case, ours, theirs, step, [case.batch, *others, case.batch, *others])
    assert step._newest.taken_over


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [pytest.param({"accumulate": 3}, marks=pytest.mark.slow), {"accumulate": 2, "clip": 0.1}]
)
def test_with_accumulation(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    given = {"clip_grad_norm" if key == "clip" else key: value for key, value in options.items()}
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "70%", time_limit=1, **given)
    with nothing_measured(monkeypatch):
        trains_as_eager(case, ours, theirs, step, [images(s, 12) for s in (16, 11, 16, 11, 9, 9)], **options)


@pytest.mark.slow
def test_a_larger_batch_is_planned_from_scaled_figures_or_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "85%", time_limit=1)
    with nothing_measured(monkeypatch):
        trains_as_eager(case, ours, theirs, step, [case.batch, images(18, 12), images(18, 12)])
    assert step.plan is not None
    assert "another shape" not in step.plan.note  # those decisions would have been over the budget
    with pytest.raises(lowtide.BudgetInfeasible, match="smaller batch"):
        step(images(160, 12))
    assert list(differences(ours, theirs)) == []
    trains_as_eager(case, ours, theirs, step, [case.batch])


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_once_that_pays_it_is_measured_in_its_own_steps_and_planned(
    fails: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "60%", time_limit=1, measure="before")
    small, other = images(15, 12), images(14, 12)
    with nothing_measured(monkeypatch):
        trains_as_eager(case, ours, theirs, step, [small, small])
        at_hand = step._newest
        assert at_hand.lost > 0
        step._forms.planning_seconds = at_hand.lost / 2
        trains_as_eager(case, ours, theirs, step, [small, other, small])  # another shape comes between
        assert step._newest.before is at_hand
        assert step._newest.guess is not None
        assert step.is_planned
        assert step.profile is None  # asking for it, or for the plan, changes nothing
        assert step.plan == at_hand.plans[0]
        step.save_plan(tmp_path / "plan.json")
        if fails:
            monkeypatch.setattr("lowtide.training.making.plan_steps", cannot)
        step._forms.planning_seconds = float("inf")
        trains_as_eager(case, ours, theirs, step, [small] * 3)
    if fails:
        assert step._newest is at_hand
        trains_as_eager(case, ours, theirs, step, [small])
    else:
        assert step.profile is not None
        assert step.profile.runs == 2
        assert not step._newest.taken_over
    assert len(step._prepared) == 3


def cannot(guess: Any, wanted: Any, *others: Any) -> Any:
    """Plans for a byte."""
    return pipeline.plan_steps(guess, replace(wanted, budget=1), *others)


@pytest.mark.slow
def test_one_that_takes_more_than_the_budget_is_planned_anew(caplog: pytest.LogCaptureFixture) -> None:
    case = deep_convnet()
    ours, _ = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "60%", time_limit=1, measure="before")
    small = images(15, 12)
    step(small)
    step.last.peak = 2 * (step.measured_peak or 0)
    step._compare(step._newest, next(iter(step._newest.steps)), complete=True)
    assert any("more than the budget" in record.message for record in caplog.records)
    step(small)
    assert step.profile is not None


@pytest.mark.slow
def test_other_ops_are_not_taken_over() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x).tanh() if x.shape[0] > 100 else layer(x).relu()
            return x.square().mean()

    case = Case(Branching(), torch.randn(128, 32), torch.randn(128, 32))
    ours, theirs = setting(case, lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, None, "80%", time_limit=1)
    trains_as_eager(case, ours, theirs, step, [case.batch, torch.randn(90, 32), torch.randn(110, 32)])
    assert [p.taken_over for p in step._prepared] == [False, False, True]


class Deciding(nn.Module):
    """Decides by its first batch which loss it has, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.kind: str | None = None
        self.memory: list[str] | None = None

    def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inputs, labels = batch
        if self.kind is None:
            self.kind = "classes" if labels.dtype == torch.int64 else "numbers"
        if self.kind == "classes":
            return nn.functional.cross_entropy(self.layer(inputs), labels)
        return nn.functional.mse_loss(self.layer(inputs), labels)


def deciding_batch(size: int, *, floats: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 8), torch.rand(size, 4) if floats else torch.randint(4, (size,))


def test_what_the_first_step_decides_is_decided_for_later_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Deciding(), deciding_batch(6), deciding_batch(6), lambda model, batch: model(batch))
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss)
    assert ours.model.kind is None  # nothing has run yet
    with monkeypatch.context() as patch:
        for number, batch in enumerate([case.batch, deciding_batch(5), deciding_batch(4, floats=True), case.batch]):
            ours.loss = step(batch)
            eager_micro_step(theirs, case, batch, number, place=0)
            assert list(differences(ours, theirs)) == [], f"batch {number}"
            assert ours.model.kind == theirs.model.kind == "classes"
            patch.setattr("lowtide.tracing.capture.has_settled", None)  # no forward is run twice after the first step
    assert len(step._prepared) == 3


def test_an_object_that_a_trace_made_does_not_stay() -> None:
    class Keeping(Deciding):
        def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            if self.memory is None:
                self.memory = ["a list of the trace"]
            return super().forward(batch)

    model = Keeping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lowtide.train_step(model, optimizer, deciding_batch(6), lambda model, batch: model(batch))
    step(deciding_batch(6))
    assert model.memory is None
    assert model.kind is None
    step(deciding_batch(5))


@pytest.mark.slow
def test_a_file_holds_the_plans_of_all_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    path = tmp_path / "plan.json"
    batches = [case.batch, images(12, 12)]
    first = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "70%", time_limit=1)
    trains_as_eager(case, ours, theirs, first, batches)
    first.save_plan(path)
    with nothing_measured(monkeypatch):
        for start in (0, 1):
            step = lowtide.train_step(ours.model, ours.optimizer, batches[start], case.loss, plan=path)
            monkeypatch.setattr(pipeline, "plan_alike", None)  # each is found in the file
            trains_as_eager(case, ours, theirs, step, batches)
            assert step.plan is not None
            assert first.plan is not None
            assert step.plan.budget == first.plan.budget
        with pytest.raises(lowtide.PlanMismatch, match="the batch has"):
            lowtide.train_step(ours.model, ours.optimizer, images(3, 12), case.loss, plan=path)


@pytest.mark.parametrize("forms", [0, -1, True, "many"])
def test_a_number_of_forms_that_makes_no_sense(forms: Any) -> None:
    case = ZOO["mlp"]()
    with pytest.raises(InputError, match="forms must be a whole number of at least 1"):
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, forms=forms)
