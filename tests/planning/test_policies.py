"""What holds for every policy on every problem."""

import math
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import InputError
from lowtide.planning.policies import POLICIES, BudgetInfeasible, Plan, policy
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import verify
from lowtide.planning.simulate import simulate
from tests.planning import exhaustive
from tests.planning.strategies import problems, training_problems

THERE = [name for name in POLICIES if find_spec(POLICIES[name]) is not None and hasattr(policy(name), "plan")]
any_problem = st.one_of(problems(), training_problems())
needs_optimal = pytest.mark.skipif("optimal" not in THERE, reason="optimal is not there yet")


def attempt(name: str, problem: Problem, budget: int) -> Plan | BudgetInfeasible:
    """The plan, or why there is none, checked against what any policy must hold to."""
    plan = plan_or_refusal(name, problem, budget)
    if isinstance(plan, BudgetInfeasible):
        assert plan.floor > budget
        assert plan.budget == budget
        assert all(size == problem.sizes[s] for s, size in plan.blockers)
        return plan
    verify(problem, plan.schedule)
    timeline = simulate(problem, plan.schedule.ops)
    assert plan.policy == name
    assert (plan.peak, plan.time, plan.overhead) == (timeline.peak, timeline.time, timeline.overhead)
    assert plan.peak <= budget
    assert plan.bound <= plan.overhead + 1e-9
    assert plan.gap == pytest.approx(max(0.0, plan.overhead - plan.bound))
    return plan


def plan_or_refusal(name: str, problem: Problem, budget: int) -> Plan | BudgetInfeasible:
    try:
        return policy(name).plan(problem, budget, time_limit=10.0, seed=0)
    except BudgetInfeasible as infeasible:
        return infeasible


def budgets(problem: Problem) -> st.SearchStrategy[int]:
    """From a little more than the program order needs down to almost nothing above the residents."""
    peak = simulate(problem, problem.program).peak
    return st.integers(0, max(0, peak - problem.resident_bytes)).map(lambda cut: peak + 1 - cut)


@pytest.mark.parametrize("name", [name for name in THERE if name != "optimal"])
@settings(max_examples=80)
@given(data=st.data())
def test_a_plan_is_valid_within_the_budget_and_as_simulated(name: str, data: st.DataObject) -> None:
    problem = data.draw(any_problem)
    attempt(name, problem, data.draw(budgets(problem)))


@pytest.mark.parametrize("name", [name for name in THERE if name != "optimal"])
@settings(max_examples=20)
@given(problem=any_problem)
def test_nothing_is_recomputed_where_everything_fits(name: str, problem: Problem) -> None:
    plan = attempt(name, problem, simulate(problem, problem.program).peak)
    assert isinstance(plan, Plan)
    assert plan.schedule.ops == problem.program


@needs_optimal
@settings(max_examples=25)
@given(data=st.data())
def test_optimal_equals_exhaustive_search(data: st.DataObject) -> None:
    problem = data.draw(problems())
    budget = data.draw(budgets(problem))
    best = exhaustive.least_time(problem, budget)
    plan = attempt("optimal", problem, budget)
    if best is None:
        assert isinstance(plan, BudgetInfeasible)
        assert plan.floor >= exhaustive.least_peak(problem).value
    else:
        assert isinstance(plan, Plan)
        assert math.isclose(plan.time, best.value)
        assert plan.bound <= best.value / problem.base_time - 1 + 1e-9 if problem.base_time else True


@needs_optimal
@settings(max_examples=15)
@given(data=st.data())
def test_optimal_is_never_worse_than_the_others(data: st.DataObject) -> None:
    problem = data.draw(training_problems(max_layers=8))
    budget = data.draw(budgets(problem))
    plan = attempt("optimal", problem, budget)
    for name in ("mutwo", "chen", "keep_all"):
        other = attempt(name, problem, budget)
        if isinstance(other, Plan):
            assert isinstance(plan, Plan)
            assert plan.time <= other.time
            assert plan.bound <= other.overhead + 1e-9


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InputError, match="no policy 'best'"):
        policy("best")


def test_infeasible_says_how_far_it_came() -> None:
    problem = Problem("none", (), ())
    error = BudgetInfeasible(problem, 2048, floor=4096, proven=False, blockers=())
    assert str(error) == (
        "no schedule was found (nor proven impossible) within 2.00 KiB (2048 bytes); "
        "the least peak found is 4.00 KiB (4096 bytes)"
    )
    assert "no schedule can stay within" in str(BudgetInfeasible(problem, 2, floor=4, proven=True, blockers=()))
