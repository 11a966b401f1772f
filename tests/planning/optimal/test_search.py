"""The optimal policy as a whole: exact on tiny problems, never over the budget, never worse than the others."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal import frontier, plan
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.search import plan as search
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.policies import BudgetInfeasible, policy
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import verify
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import repeated_blocks
from tests.planning.exhaustive import least_peak, least_time
from tests.planning.strategies import problems, training_problems


def _budget(problem: Problem, share: float) -> int:
    peak = simulate(problem, problem.program).peak
    return problem.resident_bytes + int(share * (peak - problem.resident_bytes))


@settings(max_examples=60, deadline=None)
@given(problem=problems(), share=st.floats(0.1, 1.0))
def test_equals_exhaustive_search(problem: Problem, share: float) -> None:
    budget = _budget(problem, share)
    best = least_time(problem, budget)
    if best is None:
        with pytest.raises(BudgetInfeasible) as caught:
            plan(problem, budget, time_limit=5)
        assert caught.value.proven
        return
    found = plan(problem, budget, time_limit=5)
    verify(problem, found.schedule)
    assert found.peak <= budget
    assert found.time == pytest.approx(best.value)
    assert found.gap == pytest.approx(0, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(problem=training_problems(max_layers=4), share=st.floats(0.0, 0.9))
def test_what_is_certain_holds_without_exhaustive_search_too(problem: Problem, share: float) -> None:
    """The search that larger problems get: its plans, bounds and proofs against the optimum."""
    peak, least = simulate(problem, problem.program).peak, int(least_peak(problem).value)
    assume(least < peak)
    budget = least + int(share * (peak - least))
    best, bounds, raise_bound = least_time(problem, budget), [0.0], Incumbent.raise_bound

    def heard(self: Incumbent, bound: float) -> None:
        bounds.append(bound)
        raise_bound(self, bound)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lowtide.planning.optimal.exact.SETTINGS", replace(SETTINGS, exact_ops=0))
        patch.setattr(Incumbent, "raise_bound", heard)
        try:
            found = search(problem, budget, time_limit=0.3, clock=False)
        except BudgetInfeasible as infeasible:
            found, proven = None, infeasible.proven
    if found is None:
        assert best is None or not proven
        return
    assert best is not None
    verify(problem, found.schedule)
    assert found.peak <= budget
    assert found.time >= best.value - 1e-9
    assert max(bounds) <= best.value - problem.base_time + 1e-6


@settings(max_examples=15, deadline=None)
@given(problem=training_problems(max_layers=9), share=st.floats(0.3, 0.95))
def test_never_worse_than_the_other_policies(problem: Problem, share: float) -> None:
    budget = _budget(problem, share)
    others = []
    for name in ("chen", "mutwo", "keep_all"):
        try:
            others.append(policy(name).plan(problem, budget).time)
        except BudgetInfeasible:
            continue
    try:
        found = plan(problem, budget, time_limit=2)
    except BudgetInfeasible:
        assert not others
        return
    assert found.peak <= budget
    assert found.time <= min(others, default=math.inf)
    assert found.bound <= found.overhead + 1e-12


@pytest.mark.parametrize(("share", "most"), [(0.8, 0.02), (0.5, 0.06), (0.3, 0.5)])
def test_a_chain_of_blocks_fits_and_is_near_its_bound(share: float, most: float) -> None:
    problem = repeated_blocks(6)
    found = plan(problem, _budget(problem, share), time_limit=4)
    assert found.peak <= _budget(problem, share)
    assert 0 <= found.gap < most


def test_ever_more_instants_close_a_small_chain() -> None:
    problem = repeated_blocks(5)
    found = plan(problem, _budget(problem, 0.5), time_limit=600)  # ends early; the clock must not cut
    assert found.note == "proven best"
    assert found.overhead == pytest.approx(0.143425, abs=1e-5)


def test_an_op_that_alone_is_too_large_is_a_proof() -> None:
    problem = repeated_blocks(4)
    with pytest.raises(BudgetInfeasible) as caught:
        plan(problem, problem.resident_bytes + 1000, time_limit=5)
    assert caught.value.proven
    assert caught.value.blockers


def test_frontier_falls_from_the_program_to_the_floor() -> None:
    problem = repeated_blocks(3)
    plans = frontier(problem, points=4, time_limit=6)
    assert plans[0].overhead == 0
    assert len(plans) > 2
    for before, after in pairwise(plans):
        assert after.peak < before.peak
        assert after.time >= before.time
        assert after.bound >= before.bound - 1e-9
    for found in plans:
        verify(problem, found.schedule)
