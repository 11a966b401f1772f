"""Large steps are planned apart; a budget may be that of the process."""

from typing import Any

import pytest
import torch

import lowtide
from lowtide.device import outside
from lowtide.planning import apart
from lowtide.training import making
from tests.training.test_train_step import adam, deep_convnet


def test_planned_apart_it_trains_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    case = deep_convnet()
    here = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget="70%", time_limit=4.0)
    real, done = apart.apart, []

    def noted(*args: Any, **options: Any) -> Any:
        done.append(args)
        return real(*args, **options)

    monkeypatch.setattr(apart, "apart", noted)
    monkeypatch.setattr(apart, "LARGE", 1)
    there = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget="70%", time_limit=4.0)
    assert there.plan is not None
    assert here.plan is not None
    assert there.plan.rewritten
    assert done
    assert there.plan.budget == here.plan.budget
    there(case.batch)
    assert there.measured_peak is None or there.measured_peak <= there.plan.budget


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The process takes 30 MiB more each time that somebody asks."""
    taken = iter(range(10**8, 10**9, 30 * 2**20))
    monkeypatch.setattr(making, "outside_bytes", lambda: next(taken))


def test_what_is_beside_tensors_comes_off_the_budget(grown: None) -> None:
    case = deep_convnet()
    step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget="1GiB", counts="process")
    assert step.plan is not None
    assert step.plan.budget == 2**30 - 30 * 2**20 - int(making.IN_STEPS * 2**30)


def test_not_by_itself(grown: None) -> None:
    case = deep_convnet()
    step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget="1GiB")
    assert step.plan is not None
    assert step.plan.budget == 2**30


def test_what_else_it_could_count_is_refused() -> None:
    case = deep_convnet()
    with pytest.raises(lowtide.InputError, match="counts must be one of tensors, process"):
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, budget="1GiB", counts="bytes")  # type: ignore[arg-type,unused-ignore]


def test_it_is_for_the_cpu() -> None:
    case = deep_convnet()
    model = case.model.to("meta")
    with pytest.raises(lowtide.InputError, match="is for models on the CPU, not on meta"):
        lowtide.train_step(model, adam(model), case.batch, case.loss, budget="1GiB", counts="process")


def test_tensors_are_not_beside_tensors() -> None:
    before = outside.outside_bytes()
    held = torch.ones(2**26)
    assert abs(outside.outside_bytes() - before) < held.nbytes / 4


@pytest.mark.parametrize(("large", "times"), [(1, 1), (2**40, 0)])
def test_a_large_step_without_a_budget_gives_back_what_capture_took(
    large: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[None] = []
    monkeypatch.setattr(making, "LARGE", large)
    monkeypatch.setattr(making, "give_back", lambda: given.append(None))
    case = deep_convnet()
    step = lowtide.train_step(case.model, adam(case.model), case.batch, case.loss)
    step(case.batch)
    assert len(given) == times
