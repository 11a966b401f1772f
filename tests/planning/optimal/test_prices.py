"""Bounds by prices: never above the optimum, and better with more instants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal.cutting import best_prices, price_bound
from lowtide.planning.optimal.eliminate import Elimination, TooWide
from lowtide.planning.optimal.instants import Model
from lowtide.planning.optimal.prices import Prices
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import repeated_blocks
from tests.planning.exhaustive import least_time
from tests.planning.strategies import problems, training_problems


@settings(max_examples=150, deadline=None)
@given(
    problem=st.one_of(problems(), training_problems(max_layers=4)).filter(
        lambda problem: not any(op.optional for op in problem.ops)
    ),
    data=st.data(),
)
def test_any_prices_are_a_bound(problem: Problem, data: st.DataObject) -> None:
    budget = data.draw(st.integers(problem.resident_bytes, simulate(problem, problem.program).peak))
    best = least_time(problem, budget)
    if best is None:
        return
    view = ProgramView(problem)
    positions = st.integers(0, view.count - 1)
    instants = sorted(set(data.draw(st.lists(positions, min_size=1, max_size=4))))
    prices = data.draw(st.lists(st.floats(0, 4), min_size=len(instants), max_size=len(instants)))
    model = Prices(view, budget, instants)
    assert model.at(np.array(prices)).bound <= best.value - problem.base_time + 1e-9
    found, _ = best_prices(model, np.array(prices), rounds=8)
    assert found <= best.value - problem.base_time + 1e-6


def test_one_instant_is_nearly_its_integer_program() -> None:
    problem = repeated_blocks(24)
    view = ProgramView(problem)
    budget = (problem.resident_bytes + simulate(problem, problem.program).peak) // 2
    top = int(view.live.argmax())
    price = problem.base_time / budget
    found, _ = best_prices(Prices(view, budget, [top]), np.array([price]))
    exact = Model(view, budget, [top], certify=True).solve(seconds=5).bound
    assert 0.9 * exact <= found <= exact + 1e-6 * problem.base_time


def test_more_instants_ask_for_more() -> None:
    problem = repeated_blocks(12)
    view = ProgramView(problem)
    budget = problem.resident_bytes + (simulate(problem, problem.program).peak - problem.resident_bytes) // 4
    top = int(view.live.argmax())
    seen: list[float] = []
    found = price_bound(
        view, budget, top, price=problem.base_time / budget, left=lambda: 2.0 - len(seen), found=seen.append
    )
    alone, _ = best_prices(Prices(view, budget, [top]), np.array([problem.base_time / budget]))
    assert found == max(seen) > 1.02 * alone


def test_elimination_finds_the_least_sum() -> None:
    chance = np.random.default_rng(0)
    sizes = {0: 3, 1: 2, 2: 4, 3: 3}
    scopes = [(0, 1), (1, 2), (2, 3), (3, 0), (2,)]
    tables = [chance.random(tuple(sizes[v] for v in scope)) for scope in scopes]

    def value(at: dict[int, int]) -> float:
        return sum(float(table[tuple(at[v] for v in scope)]) for scope, table in zip(scopes, tables, strict=True))

    every = [dict(enumerate(at)) for at in np.ndindex(3, 2, 4, 3)]
    total, chosen = Elimination(sizes, scopes).minimise(tables)
    assert total == pytest.approx(min(map(value, every)))
    assert value(chosen) == pytest.approx(total)


def test_elimination_refuses_what_is_too_wide() -> None:
    sizes = dict.fromkeys(range(4), 100)
    with pytest.raises(TooWide):
        Elimination(sizes, [(a, b) for a in range(4) for b in range(a)])
