"""The parts of the optimal policy, each against the simulator or by hand."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal.certify import allowed_runs, even_cuts
from lowtide.planning.optimal.decision import build
from lowtide.planning.optimal.eliminate import TooWide
from lowtide.planning.optimal.instants import Model
from lowtide.planning.optimal.lifetimes import Lifetimes, live_bytes, part_peak
from lowtide.planning.optimal.options import KeepOrRerun
from lowtide.planning.optimal.packing import pairs
from lowtide.planning.optimal.program_view import ProgramView, extra_steps
from lowtide.planning.optimal.prune import prune
from lowtide.planning.optimal.repair import repair
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule, verify
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import repeated_blocks
from tests.planning.exhaustive import least_time
from tests.planning.strategies import problems, training_problems


def _half(problem: Problem) -> int:
    return (problem.resident_bytes + simulate(problem, problem.program).peak) // 2


@settings(max_examples=60, deadline=None)
@given(problem=problems(), data=st.data())
def test_every_instant_is_a_bound(problem: Problem, data: st.DataObject) -> None:
    budget = data.draw(st.integers(problem.resident_bytes, simulate(problem, problem.program).peak))
    best = least_time(problem, budget)
    if best is None:
        return
    view = ProgramView(problem)
    extra = best.value - problem.base_time
    positions = st.integers(0, view.count - 1)
    instants = sorted(set(data.draw(st.lists(positions, min_size=1, max_size=3))))
    model = Model(view, budget, instants, certify=True)
    assert model.relaxed(seconds=5) <= extra + 1e-6
    if len(instants) == 1 or not view.futile:
        assert model.solve(seconds=5, tolerance=1e-9).bound <= extra + 1e-4 * max(1.0, problem.base_time)


@settings(max_examples=40, deadline=None)
@given(problem=training_problems(), data=st.data())
def test_live_bytes_are_the_simulators(problem: Problem, data: st.DataObject) -> None:
    order = list(problem.program)
    for _ in range(data.draw(st.integers(0, 4))):
        step = data.draw(st.integers(1, len(order)))
        able = [o for o in order[:step] if not problem.ops[o].once]
        if able:
            order.insert(step, data.draw(st.sampled_from(able)))
    assert tuple(live_bytes(problem, order).tolist()) == simulate(problem, order).live
    made = {s for o in order for s in problem.writes[o]}
    if len(order) == len(problem.program):
        peak = part_peak(problem, order, made, stay=problem.kept, beside=problem.resident_bytes)
        assert peak == simulate(problem, order).peak
    view = ProgramView(problem)
    pruned = prune(view, order, simulate(problem, order).peak)
    verify(problem, Schedule(tuple(pruned)))
    assert simulate(problem, pruned).peak <= simulate(problem, order).peak
    assert simulate(problem, pruned).time <= simulate(problem, order).time


@settings(max_examples=60, deadline=None)
@given(problem=training_problems(), data=st.data())
def test_lifetimes_know_what_leaving_out_a_run_does(problem: Problem, data: st.DataObject) -> None:
    order = list(problem.program)
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.integers(1, len(order)))
        able = [o for o in order[:step] if not problem.ops[o].once]
        if able:
            order.insert(step, data.draw(st.sampled_from(able)))
    view = ProgramView(problem)
    lifetimes = Lifetimes(view, order)
    for step in data.draw(st.permutations(extra_steps(view, order))):
        changes = lifetimes.removal(step)
        if changes is not None:
            lifetimes.remove(step, changes)
            left = lifetimes.live[np.array(lifetimes.alive)]
            assert tuple(left.tolist()) == simulate(problem, lifetimes.remaining()).live


def test_an_instant_lets_its_op_run_in_place() -> None:
    problem = Problem(
        "in place",
        (Storage(10), Storage(10), Storage(10), Storage(1, keep=True)),
        (
            Op("a", 5, (), (0,)),
            Op("b", 3, (0,), (1,), reuses=0),
            Op("c", 1, (1,), (2,), reuses=1),
            Op("d", 1, (0, 2), (3,)),
        ),
    )
    view = ProgramView(problem)
    assert [int(size) for size in view.least] == [10, 10, 10, 21]
    outcome = Model(view, 19, [1], certify=True).solve(seconds=5)
    assert outcome.objective == pytest.approx(5)
    assert outcome.decision is not None
    order = build(view, outcome.decision)
    assert order is not None
    assert simulate(problem, order).live == (10, 10, 10, 20, 21)
    assert Model(view, 21, [1, 2], certify=True).solve(seconds=5).objective == pytest.approx(0)


def test_stages_are_a_restriction_whose_decision_can_be_built() -> None:
    problem = repeated_blocks(4)
    view = ProgramView(problem)
    budget = _half(problem)
    cuts = even_cuts(view, 4)
    staged = Model(view, budget, cuts, allowed=allowed_runs(view, cuts)).solve(seconds=5)
    free = Model(view, budget, cuts, certify=True).solve(seconds=5)
    assert staged.objective >= free.bound * (1 - 1e-6)
    assert staged.decision is not None
    order = build(view, staged.decision)
    assert order is not None
    verify(problem, Schedule(tuple(order)))
    assert simulate(problem, order).time - problem.base_time >= staged.bound * (1 - 1e-6)


def test_repair_brings_the_program_within_the_budget() -> None:
    problem = repeated_blocks(4)
    budget = _half(problem)
    found = repair(ProgramView(problem), problem.program, budget)
    assert found is not None
    assert simulate(problem, found).peak <= budget


def test_keeping_or_rerunning_is_the_best_of_all_sets_of_runs() -> None:
    """A chain of four values with a skip; backward wants the first three, and the second can be packed for two."""
    sizes, times = (8, 8, 4, 8), (3.0, 5.0, 2.0, 4.0)
    reads = ((0,), (1,), (1, 2), (3,))
    storages = (Storage(1, resident=True), *map(Storage, sizes), Storage(1))
    ops = [Op(f"op{i}", times[i], reads[i], (i + 1,)) for i in range(4)]
    ops += [Op("pack", 1, (2,), (5,), optional=True), Op("unpack", 1, (5,), (2,), optional=True)]
    problem = Problem("block", storages, tuple(ops))
    wanted = {1, 2, 3}
    saving = KeepOrRerun(problem, range(4), wanted, given={0}, free=(), packing=pairs(problem))
    packed = set[bool]()
    for price in (0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 5.0):
        costs = {s: min(price * size, price + 2 if s == 2 else math.inf) for s, size in enumerate(sizes, 1)}
        best = math.inf
        for runs in (set(some) for count in range(5) for some in combinations(range(4), count)):
            read = wanted | {s for o in runs for s in reads[o]} - {0}
            best = min(best, sum(times[o] for o in runs) + sum(costs[s] for s in read if s - 1 not in runs))
        saved, time = saving.at(price)
        assert time + price * sum(problem.sizes[s] for s in saved) == pytest.approx(best)
        packed.add(5 in saved)
    assert packed == {True, False}


def test_a_value_that_very_many_ops_read_is_refused_before_its_table_is_made() -> None:
    readers = 40
    storages = (Storage(1, resident=True), *(Storage(1) for _ in range(readers + 1)))
    ops = (Op("make", 1, (0,), (1,)), *(Op(f"read{i}", 1, (1,), (i + 2,)) for i in range(readers)))
    problem = Problem("fan", storages, ops)
    with pytest.raises(TooWide):
        KeepOrRerun(problem, range(readers + 1), needed=range(2, readers + 2), given={0}, free=(), packing={})


def test_packing_is_used_where_it_is_cheaper_than_recomputing() -> None:
    storages = [Storage(1, resident=True), *(Storage(8) for _ in range(3)), Storage(1), Storage(1, keep=True)]
    ops = (
        Op("draw", 50, (0,), (1,)),
        Op("use", 50, (1,), (2,)),
        Op("more", 50, (2,), (3,)),
        Op("back", 1, (1, 3), (5,)),
        Op("pack", 1, (1,), (4,), optional=True),
        Op("unpack", 1, (4,), (1,), optional=True),
    )
    problem = Problem("packed", tuple(storages), ops)
    view = ProgramView(problem)
    assert view.futile == {4}
    outcome = Model(view, 20, [2], certify=True).solve(seconds=5)
    assert outcome.objective == pytest.approx(2)
    assert outcome.decision is not None
    order = build(view, outcome.decision)
    assert order == [0, 4, 1, 2, 5, 3] or order == [0, 1, 4, 2, 5, 3]
