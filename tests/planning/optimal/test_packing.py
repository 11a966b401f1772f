"""Packing as bounds and walks see it: never above the optimum, and orders that come back as orders of the problem."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal.cutting import best_prices
from lowtide.planning.optimal.lifetimes import live_bytes
from lowtide.planning.optimal.packing import Packing, packed_by, packings, unpacked, with_packing
from lowtide.planning.optimal.prices import Prices
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.spine.bound import SpineBound
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.simulate import simulate
from tests.planning.exhaustive import least_time
from tests.planning.strategies import problems, training_problems


@st.composite
def packable(draw: st.DrawFn) -> Problem:
    """A chain forward and backward with one or two values that can be packed, perhaps in two steps."""
    problem = draw(training_problems(max_layers=3))
    storages, ops = list(problem.storages), list(problem.ops)
    written = [s for op in ops for s in op.writes]
    for s in draw(st.lists(st.sampled_from(written), min_size=1, max_size=2, unique=True)):
        source = s
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            form = len(storages)
            storages.append(Storage(draw(st.integers(0, 3))))
            time, once = st.integers(0, 2), draw(st.integers(0, 9)) == 0
            ops.append(Op("pack", draw(time), (source,), (form,), draw(st.integers(0, 1)), once, optional=True))
            ops.append(Op("unpack", draw(time), (form,), (source,), draw(st.integers(0, 1)), optional=True))
            source = form
    found = Problem("packable", tuple(storages), tuple(ops))
    found.verify()
    return found


def _budget(problem: Problem, data: st.DataObject) -> int:
    peak = simulate(problem, problem.program).peak
    return data.draw(st.integers(max(problem.resident_bytes, peak - 8), peak))


@settings(max_examples=150, deadline=None)
@given(problem=st.one_of(problems(), packable()), data=st.data())
def test_the_plain_problem_is_never_slower(problem: Problem, data: st.DataObject) -> None:
    """With what the best schedule packs left out, it is a schedule of the plain problem within the same budget."""
    budget = _budget(problem, data)
    best = least_time(problem, budget)
    if best is None:
        return
    packed = packed_by(problem, best.order)
    plain = unpacked(problem, packed)
    back = {o: k for k, o in enumerate(problem.program)}
    stripped = [back[o] for o in best.order if o in back]
    assert simulate(plain, stripped).peak <= budget
    spent = sum(problem.times[o] for o in best.order if problem.ops[o].optional)
    assert spent >= sum(packings(problem)[s].time for s in packed)


@settings(max_examples=150, deadline=None)
@given(problem=st.one_of(problems(), packable()), data=st.data())
def test_bounds_with_packing_are_never_above_the_optimum(problem: Problem, data: st.DataObject) -> None:
    budget = _budget(problem, data)
    best = least_time(problem, budget)
    if best is None:
        return
    view, extra = ProgramView(problem).plain, best.value - problem.base_time
    for top in range(1, view.count):
        chain = SpineBound(view, budget, top, left=lambda: math.inf).at(240)
        assert chain is None or chain.least <= extra + 1e-9
    positions = st.integers(0, view.count - 1)
    instants = sorted(set(data.draw(st.lists(positions, min_size=1, max_size=3))))
    prices = np.array(data.draw(st.lists(st.floats(0, 4), min_size=len(instants), max_size=len(instants))))
    model = Prices(view, budget, instants)
    assert model.at(prices).bound <= extra + 1e-9
    assert best_prices(model, prices, rounds=8)[0] <= extra + 1e-6


@settings(max_examples=150, deadline=None)
@given(problem=packable(), data=st.data())
def test_an_order_of_the_plain_problem_comes_back_packed(problem: Problem, data: st.DataObject) -> None:
    """It can run, and what it keeps while others run is what the plain problem says, packing itself aside."""
    plain = unpacked(problem, packings(problem))
    order = list(plain.program)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(1, len(order)))
        able = [o for o in order[:at] if not plain.ops[o].once]
        order[at:at] = [data.draw(st.sampled_from(able))] if able else []
    found = with_packing(problem, packings(problem), [problem.program[o] for o in order])
    simulate(problem, found)
    assert [o for o in found if not problem.ops[o].optional] == [problem.program[o] for o in order]


def test_a_mask_waits_small() -> None:
    """Made, packed after its first reader, unpacked before its second: as the plain problem counts it."""
    storages = tuple(Storage(size) for size in (8, 2, 2, 2, 1))
    program = (
        Op("mask", 1, (), (0,)),
        Op("use", 1, (0,), (1,)),
        Op("more", 1, (1,), (2,)),
        Op("back", 1, (0, 2), (3,)),
    )
    packing = (Op("pack", 1, (0,), (4,), optional=True), Op("unpack", 2, (4,), (0,), optional=True))
    problem = Problem("mask", storages, program + packing)
    assert packings(problem) == {0: Packing(1, 3)}
    plain = unpacked(problem, [0])
    assert live_bytes(plain, plain.program).tolist() == [8, 10, 5, 12]
    assert with_packing(problem, [0], problem.program) == [0, 1, 4, 2, 5, 3]


def test_what_is_no_packing_costs_nothing() -> None:
    """An optional op that makes a value from others, as swaps arranged into a program do."""
    ops = (
        Op("a", 1, (), (0,)),
        Op("b", 1, (0,), (1,)),
        Op("c", 1, (1,), (2,)),
        Op("twin", 1, (2,), (1,), optional=True),
    )
    assert packings(Problem("twin", (Storage(1),) * 3, ops)) == {1: Packing(0, 0.0)}


def test_without_optional_ops_nothing_changes() -> None:
    problem = Problem("plain", (Storage(3),), (Op("a", 1, (), (0,)),))
    assert ProgramView(problem).plain.problem is problem
    assert packings(problem) == {}
    assert unpacked(problem).sizes == (3,)
