"""The first steps are measured while they train: none is wasted, each is eager's, and then the plan is put in."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import lowtide
from lowtide.errors import InputError, ProfileError
from lowtide.graph.ops import Op
from lowtide.profiling import runs
from lowtide.training import pipeline
from lowtide.training.train_step import TrainStep
from tests.equality import Trained, differences
from tests.rewriting.test_rewrite import tiled
from tests.tracing.test_equal import FORMS, Lookahead
from tests.training.test_sentinel import everything
from tests.training.test_train_step import adam, deep_convnet, eager_micro_step, setting
from tests.zoo import ZOO, Case, often
from tests.zoo.models import images


@pytest.fixture(autouse=True)
def _nothing_runs_beside_training(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run only to measure is an error, but where a test is about that."""

    def measure(*_: Any, **__: Any) -> None:
        raise AssertionError("a step was wasted")

    if "measured_before" not in request.fixturenames:
        monkeypatch.setattr(pipeline, "profile", measure)


@pytest.fixture
def measured_before() -> None:
    """Runs only to measure are fine."""


def trained(case: Case, ours: Trained, theirs: Trained, step: TrainStep, batches: list[Any]) -> Iterator[int]:
    """One step on each batch, equal to eager's; gives the bytes at each peak."""
    for number, batch in enumerate(batches):
        torch.manual_seed(number)
        ours.loss = step(batch)
        generator = torch.get_rng_state()
        eager_micro_step(theirs, case, batch, number, place=0)
        assert torch.equal(generator, torch.get_rng_state())
        assert list(differences(ours, theirs)) == [], f"step {number + 1}"
        assert step.measured_peak is not None
        yield step.measured_peak


ROOMY = ["deep convnet", "bert", "encoder", "qwen2", "segformer"]
"""70 % of these is well above what an estimate reaches: the first steps are measured while they train."""


@pytest.mark.parametrize(("budget", "measured"), [("70%", 3), ("2GiB", 4)])
@pytest.mark.parametrize("name", often(ROOMY, 1))
def test_equal_to_eager_through_the_change_of_plan(name: str, budget: str, measured: int) -> None:
    case = deep_convnet() if name == "deep convnet" else tiled(ZOO[name](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, budget, time_limit=1, measure="training"
    )
    peaks = []
    for number, peak in enumerate(trained(case, ours, theirs, step, [case.batch, case.other] * 4), 1):
        peaks.append(peak)
        assert (step._newest.guess is not None) == (number <= measured)
    assert step.profile is not None
    assert step.profile.runs == 2
    assert step.plan is not None
    assert step.plan.rewritten == (budget == "70%")
    assert max(peaks) <= step.plan.budget
    assert peaks[-1] == pytest.approx(step.predicted_peak, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "options"), [*FORMS, (Lookahead, {})])
def test_every_form_of_optimizer(cls: type[Optimizer], options: dict[str, Any]) -> None:
    case = deep_convnet()
    ours, theirs = setting(case, lambda model: cls(model.parameters(), **options))
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "70%", time_limit=1, measure="training"
    )
    assert step._newest.guess is not None
    peaks = list(trained(case, ours, theirs, step, [case.batch] * 6))
    assert step._newest.guess is None
    assert step.plan is not None
    assert max(peaks) <= step.plan.budget


def test_hooks_of_the_optimizer_see_every_step_once() -> None:
    case = tiled(ZOO["mlp"](), 8)
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    step = lowtide.train_step(case.model, optimizer, case.batch, case.loss, "2GiB", time_limit=1, measure="training")
    for number in range(1, 6):
        step(case.batch)
        assert len(calls) == number


@pytest.mark.slow
def test_whoever_asks_gets_the_plan(measured_before: None, caplog: pytest.LogCaptureFixture) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)

    def made(**options: Any) -> TrainStep:
        return lowtide.train_step(
            ours.model,
            ours.optimizer,
            case.batch,
            case.loss,
            "70%",
            time_limit=1,
            **({"measure": "training"} | options),
        )

    before = everything(ours.model, ours.optimizer)
    step = made()
    assert "0 of 3 steps measured" in repr(step)
    assert step.plan is not None
    assert step.plan.rewritten
    assert made(measure="before")._newest.guess is None
    assert all(map(torch.equal, everything(ours.model, ours.optimizer), before))
    step = made()
    (peak,) = trained(case, ours, theirs, step, [case.batch])
    assert step.plan is not None
    assert step.plan.rewritten
    assert peak <= step.plan.budget
    assert step.profile is not None
    assert step.profile.runs == 1
    last = list(trained(case, ours, theirs, step, [case.batch] * 3))[-1]
    assert last == pytest.approx(step.predicted_peak, rel=0.01)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.slow
def test_another_shape_comes_meanwhile() -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "60%", time_limit=1, measure="training"
    )
    small = images(12, 12)
    list(trained(case, ours, theirs, step, [case.batch, small, case.batch, small, small]))
    assert [prepared.taken_over for prepared in step._prepared] == [False, True]
    assert all(prepared.guess is None for prepared in step._prepared), "the first is planned, the second takes it over"


@pytest.mark.parametrize("options", [{}, {"sentinel": False}])
def test_a_trace_that_was_wrong_leaves_nothing_moved(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parameters have moved when it is found out, as a tight plan moves them early."""
    case = deep_convnet()
    optimizer = adam(case.model)
    step = lowtide.train_step(
        case.model, optimizer, case.batch, case.loss, "60%", time_limit=1, **({"measure": "training"} | options)
    )
    guess = step._newest.guess
    assert guess is not None
    assert guess.may_stop_midway
    moved: list[Op] = []
    real = runs._StorageCheck.made

    def made(self: Any, op: Op, value: Any) -> None:
        if len(optimizer.state) > 2:
            moved.append(op)
            raise ProfileError("strides")
        real(self, op, value)

    monkeypatch.setattr(runs._StorageCheck, "made", made)
    before = everything(case.model, optimizer)
    with pytest.raises(ProfileError, match="strides") as caught:
        step(case.batch)
    assert moved
    assert moved[0].name in caught.value.__notes__[0]
    assert "the step has not happened" in caught.value.__notes__[0]
    after = everything(case.model, optimizer)
    assert len(after) == len(before)
    assert all(map(torch.equal, after, before))
    assert not optimizer.state
    assert all(p.grad is None for p in case.model.parameters())


def test_an_op_that_fails_is_named() -> None:
    model = nn.Sequential(nn.Embedding(10, 64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    step = lowtide.train_step(model, adam(model), torch.arange(8), lambda m, b: m(b).sum(), 10**8, measure="training")
    with pytest.raises(IndexError) as caught:
        step(torch.full((8,), 99))
    assert "embedding" in caught.value.__notes__[0]
    assert "No parameter had been updated" in caught.value.__notes__[0]
    step(torch.arange(8))


def test_a_step_over_the_budget_is_the_last_of_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    """An estimate can be wrong: convolutions of doubles unfold their input, which is many times its size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 5, padding=2), nn.Flatten()).double()
    batch = torch.randn(4, 8, 24, 24).double()

    def loss(m: nn.Module, b: Tensor) -> Any:
        return m(b).square().mean()

    step = lowtide.train_step(model, adam(model), batch, loss, 2_000_000, time_limit=1, measure="training")
    assert step._newest.guess is not None
    step(batch)
    assert any("the plan is made before the next one" in record.message for record in caplog.records)
    with pytest.raises(lowtide.BudgetInfeasible, match="the workspace of convolution"):
        step(batch)


def test_a_choice_that_is_none() -> None:
    case = ZOO["mlp"]()
    with pytest.raises(InputError, match="measure must be one of training, before, not 'later'"):
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, measure="later")
