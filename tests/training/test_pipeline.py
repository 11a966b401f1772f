"""The two passes of planning: together they keep to the time limit."""

from typing import Any

import pytest

import lowtide
from lowtide.planning.policies import BudgetInfeasible, Plan, Policy, policy
from lowtide.training import pipeline, planned
from tests.rewriting.test_rewrite import tiled
from tests.training.test_train_step import setting
from tests.zoo import ZOO, often


class Watched:
    """A policy whose time limits are noted."""

    def __init__(self, inner: Policy, limits: list[float]) -> None:
        self._inner, self._limits = inner, limits

    def plan(self, *args: Any, time_limit: float, **options: Any) -> Plan:
        self._limits.append(time_limit)
        return self._inner.plan(*args, time_limit=time_limit, **options)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    noted: list[float] = []

    def watched(name: str, step_bytes: int) -> Watched:
        return Watched(policy(name), noted)

    monkeypatch.setattr(pipeline, "planner", watched)
    monkeypatch.setattr(planned, "planner", watched)
    return noted


@pytest.mark.parametrize("accumulate", often([3, 1], 1))
def test_all_plans_together_keep_to_the_time_limit(limits: list[float], accumulate: int) -> None:
    case = tiled(ZOO["encoder"](), 8)
    ours, _ = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "80%", accumulate=accumulate, time_limit=1.5
    )
    assert step.plan is not None
    assert step.plan.rewritten
    assert len(limits) >= 1 + accumulate, "a provisional plan, and one for each kind of step"
    assert sum(limits) <= 1.5 + 1e-9
    assert limits[0] <= 1.5 * pipeline.PROVISIONAL_SHARE


def test_also_where_no_plan_fits(limits: list[float]) -> None:
    case = tiled(ZOO["convnet"](), 8)
    ours, _ = setting(case)
    with pytest.raises(BudgetInfeasible):
        lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, "20%", time_limit=1.0)
    assert len(limits) >= 3, "a provisional plan near the floor, after one that found nothing"
    assert sum(limits) <= 1.0 + 1e-9


def test_small_steps_get_a_short_provisional_plan_without_a_limit() -> None:
    case = tiled(ZOO["mlp"](), 8)
    ours, _ = setting(case)
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    assert pipeline.provisional_seconds(graph, None) == 2 * pipeline.LEAST_SECONDS
    assert pipeline.provisional_seconds(graph, 0.5) == 0.5 * pipeline.PROVISIONAL_SHARE
