"""Ruin and recreate: never over the room where it says so, the same each time, better than what it began with."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.regrow.regrowth import Regrowth
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.settings import WalkStyle
from lowtide.planning.optimal.work import Allowance, Meter, working_within
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule, verify
from lowtide.planning.simulate import peak_of, simulate
from lowtide.planning.synthetic import random_layers, repeated_blocks
from tests.planning.strategies import problems, training_problems

STYLE = WalkStyle(hot=0.5, cold=0.01)


def _budget(problem: Problem, share: float) -> int:
    room = peak_of(problem, problem.program) - problem.resident_bytes
    return problem.resident_bytes + int(share * room)


@settings(max_examples=60)
@given(problem=st.one_of(problems(), training_problems()), share=st.floats(0.2, 1.0), seed=st.integers(0, 99))
def test_what_it_calls_best_is_valid_and_fits(problem: Problem, share: float, seed: int) -> None:
    budget = _budget(problem, share)
    best, last = Regrowth(ProgramView(problem), budget).grow(problem.program, STYLE, seconds=0.002, seed=seed)
    verify(problem, Schedule(tuple(last)))
    if best:
        verify(problem, Schedule(tuple(best)))
        assert simulate(problem, tuple(best)).peak <= budget


@pytest.mark.parametrize(("count", "share"), [(60, 0.7), (120, 0.8)])
def test_shorter_than_the_repaired_program(count: int, share: float) -> None:
    problem = random_layers(count, seed=1)
    view, budget = ProgramView(problem), _budget(problem, share)
    start = repair(view, problem.program, budget)
    assert start is not None
    best, _ = Regrowth(view, budget).grow(start, STYLE, seconds=0.3, seed=0)
    assert best
    before, after = simulate(problem, tuple(start)), simulate(problem, tuple(best))
    assert after.peak <= budget
    assert after.overhead < 0.8 * before.overhead


def test_a_cold_walk_accepts_nothing_that_is_worse() -> None:
    problem = random_layers(60, seed=1)
    view, budget = ProgramView(problem), _budget(problem, 0.7)
    start = repair(view, problem.program, budget)
    assert start is not None
    best, last = Regrowth(view, budget).grow(start, WalkStyle(hot=1e-9, cold=1e-9), seconds=0.1, seed=0)
    assert best
    time = simulate(problem, tuple(best)).time
    assert simulate(problem, tuple(last)).time == time
    assert time < simulate(problem, tuple(start)).time


def test_a_value_is_made_again_early_where_that_lets_its_input_go() -> None:
    ops = (
        Op("wide", 1, (), (0,), once=True),
        Op("value", 10, (0,), (1,)),
        Op("use", 1, (1,), (2,)),
        Op("full", 1, (2,), (3,), workspace=14),
        Op("last", 1, (0, 3), (4,)),
        Op("tight", 1, (4,), (5,), workspace=15),
        Op("end", 1, (1, 5), (6,)),
    )
    sizes = (6, 4, 1, 1, 1, 1, 1)
    problem = Problem("early", tuple(Storage(size) for size in sizes), ops)
    best, _ = Regrowth(ProgramView(problem), 22).grow(problem.program, STYLE, seconds=0.02, seed=0)
    assert best in ([0, 1, 2, 3, 4, 1, 5, 6], [0, 1, 2, 3, 1, 4, 5, 6])


def test_finds_a_first_order_within_the_budget() -> None:
    problem = random_layers(60, seed=1)
    view, budget = ProgramView(problem), _budget(problem, 0.5)
    assert repair(view, problem.program, budget) is None
    best, _ = Regrowth(view, budget).grow(problem.program, WalkStyle(hot=1, cold=0.01, most=40), seconds=0.5, seed=0)
    assert best
    assert simulate(problem, tuple(best)).peak <= budget


def test_what_is_kept_can_be_made_again_at_the_end() -> None:
    ops = (
        Op("a", 1, (), (0,)),
        Op("kept", 1, (0,), (1,)),
        Op("wide", 1, (0,), (2,)),
        Op("narrow", 1, (2,), (3,)),
    )
    problem = Problem("end", (Storage(1), Storage(5, keep=True), Storage(5), Storage(1, keep=True)), ops)
    best, _ = Regrowth(ProgramView(problem), 8).grow(problem.program, STYLE, seconds=0.01, seed=0)
    assert best == [0, 1, 2, 3, 1] or best == [0, 1, 2, 3, 0, 1]


def test_the_same_each_time_and_charged_as_asked() -> None:
    problem = repeated_blocks(8)
    regrowth = Regrowth(ProgramView(problem), _budget(problem, 0.5))
    with working_within(Allowance()) as allowance:
        first = regrowth.grow(problem.program, STYLE, seconds=0.25, seed=3)
    assert allowance.meter.done == pytest.approx(0.25, rel=0.02)
    assert regrowth.grow(problem.program, STYLE, seconds=0.25, seed=3) == first
    assert regrowth.grow(problem.program, STYLE, seconds=0.25, seed=4) != first


def test_ends_where_the_clock_has_cut() -> None:
    problem = repeated_blocks(4)
    with working_within(Allowance(10.0, Meter(deadline=0.0))) as allowance:
        best, last = Regrowth(ProgramView(problem), _budget(problem, 0.5)).grow(
            problem.program, STYLE, seconds=10.0, seed=0
        )
    assert allowance.meter.done == 0
    assert not best
    assert last == list(problem.program)


def test_nothing_to_drop() -> None:
    problem = Problem("one", (Storage(1, keep=True),), (Op("a", 1, (), (0,), once=True),))
    best, last = Regrowth(ProgramView(problem), 1).grow(problem.program, STYLE, seconds=0.01, seed=0)
    assert not best
    assert last == [0]


def test_compiled_code_is_loaded_only_where_it_is_used() -> None:
    code = "import sys, lowtide.cli, lowtide.planning.optimal; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
