from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.planning.optimal import frontier, plan
from lowtide.planning.optimal.swapping.arrange import without_lanes
from lowtide.planning.optimal.swapping.choice import Lanes, instant_bound
from lowtide.planning.policies import BudgetInfeasible, Plan, mutwo
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.problem_file import load_problem, save_problem
from lowtide.planning.schedule import load_schedule, verify
from lowtide.planning.simulate import simulate
from lowtide.planning.swap_places import placed
from lowtide.planning.swaps import swaps_of
from tests.planning import naive
from tests.planning.strategies import orders, problems, swapped_orders, training_problems, with_lanes

LIMIT = 2.0


def chain(copy: float, layers: int = 6, drag: float = 0.0) -> Problem:
    """Layers forward and backward, ten of time each; every activation can be swapped in `copy` of time each way."""
    storages = [Storage(5, resident=True)]
    ops: list[Op] = []
    for layer in range(layers):
        storages.append(Storage(10))
        ops.append(Op(f"forward{layer}", 10, (layer,), (layer + 1,)))
    gradient = None
    for layer in range(layers, 0, -1):
        storages.append(Storage(1))
        reads = (layer,) if gradient is None else (layer, gradient)
        gradient = len(storages) - 1
        ops.append(Op(f"backward{layer - 1}", 10, reads, (gradient,), once=True))
    for layer in range(1, layers + 1):
        away = len(storages)
        storages.append(Storage(10, off_device=True))
        ops += [
            Op(f"offload{layer}", copy, (layer,), (away,), optional=True, lane="copy"),
            Op(f"release{layer}", drag, (layer, away), (), optional=True),
            Op(f"prefetch{layer}", copy, (away,), (layer,), optional=True, lane="copy"),
        ]
    return Problem("chain", tuple(storages), tuple(ops))


def test_a_fast_lane_hides_what_recomputing_would_cost() -> None:
    problem = chain(5)
    found = plan(problem, 46, time_limit=LIMIT)
    assert (found.overhead, found.bound) == (0, 0)
    assert plan(without_lanes(problem).problem, 46, time_limit=LIMIT).overhead > 0
    names = [problem.ops[o].name for o in found.schedule.ops]
    assert any(name.startswith("release") for name in names)


def test_a_slow_lane_is_left_alone() -> None:
    problem = chain(1000)
    found = plan(problem, 46, time_limit=LIMIT)
    assert found.overhead == plan(without_lanes(problem).problem, 46, time_limit=LIMIT).overhead
    assert not any(problem.ops[o].lane == "copy" for o in found.schedule.ops)


def test_between_the_two_both_are_used() -> None:
    """The lane carries some; the rest is run again."""
    problem = chain(25, layers=12)
    budget = 66
    found = plan(problem, budget, time_limit=LIMIT)
    counts = [found.schedule.ops.count(o) for o in problem.program]
    assert any(problem.ops[o].lane == "copy" for o in found.schedule.ops)
    assert max(counts) > 1
    assert found.overhead < plan(without_lanes(problem).problem, budget, time_limit=LIMIT).overhead
    assert found.bound <= found.overhead


def test_copies_that_cost_compute_more_than_recomputing_are_left_alone() -> None:
    problem = chain(1, drag=50)
    found = plan(problem, 46, time_limit=LIMIT)
    assert found.overhead == plan(without_lanes(problem).problem, 46, time_limit=LIMIT).overhead


def test_an_op_that_needs_too_much_is_a_proof_and_anything_else_is_not() -> None:
    with pytest.raises(BudgetInfeasible) as raised:
        plan(chain(5), 15, time_limit=LIMIT)
    assert raised.value.proven
    assert raised.value.floor > 15


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_within_the_budget_and_never_worse_than_without_swaps_or_mutwo(data: st.DataObject) -> None:
    problem = data.draw(with_lanes(st.one_of(problems(), training_problems())))
    order = data.draw(swapped_orders(problem))
    if not naive.runnable(problem, order):
        return
    budget = simulate(problem, order).peak
    rivals = []
    bare = without_lanes(problem)
    with suppress(BudgetInfeasible):
        rivals.append(plan(bare.problem, budget, time_limit=LIMIT).time)
    with suppress(BudgetInfeasible):
        rivals.append(mutwo.plan(problem, budget).time)
    found = planned(problem, budget)
    if found is None:
        assert not rivals
        return
    verify(problem, found.schedule)
    timeline = simulate(problem, found.schedule.ops)
    assert (timeline.peak, timeline.time) == (found.peak, found.time)
    assert found.peak <= budget
    assert all(found.time <= rival + 1e-9 for rival in rivals)


def planned(problem: Problem, budget: int) -> Plan | None:
    """The plan for a budget that some order keeps; None where it was not found, which must not be a proof."""
    try:
        return plan(problem, budget, time_limit=LIMIT)
    except BudgetInfeasible as infeasible:
        if infeasible.proven:
            raise
        return None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_order_beats_the_bound_of_any_instant(data: st.DataObject) -> None:
    problem = data.draw(with_lanes(st.one_of(problems(), training_problems())))
    order = data.draw(st.one_of(orders(problem), swapped_orders(problem)))
    if not naive.runnable(problem, order):
        return
    lanes = Lanes(problem, tuple(swaps_of(problem).values()))
    order = placed(problem, order, lanes.swaps, simulate(problem, order).peak - data.draw(st.integers(0, 6)))
    best = planned(problem, simulate(problem, order).peak)
    if best is not None and data.draw(st.booleans()):
        order = best.schedule.ops
    timeline = simulate(problem, order)
    for instant in range(lanes.view.count):
        bound = instant_bound(lanes, timeline.peak, instant, seconds=LIMIT)
        assert bound <= timeline.time - problem.base_time + 1e-4


def test_the_bound_of_a_lane_that_carries_little_by_hand() -> None:
    """While forward's last layer runs, its input and output must be there. Of the other four the lane carries one out
    in time, since it has 40 after the first is made; each further one waits for ten, or is run again in ten."""
    problem = chain(25)
    lanes = Lanes(problem, tuple(swaps_of(problem).values()))
    assert instant_bound(lanes, 10**6, 5, seconds=LIMIT) == 0
    bounds = [instant_bound(lanes, budget, 5, seconds=LIMIT) for budget in (65, 55, 45, 35, 25)]
    assert bounds == pytest.approx([0, 0, 10, 20, 30])


def test_what_copies_take_from_compute_is_part_of_the_bound() -> None:
    """Copies are over in no time, but each value that is out at the last forward op was released, for three each."""
    lanes = Lanes(problem := chain(0, drag=3), tuple(swaps_of(problem).values()))
    bounds = [instant_bound(lanes, budget, 5, seconds=LIMIT) for budget in (65, 55, 45, 35, 25)]
    assert bounds == pytest.approx([0, 3, 6, 9, 12])
    assert plan(problem, 45, time_limit=LIMIT).bound > 0


def every_order(problem: Problem, most: int) -> Iterator[tuple[int, ...]]:
    """All orders with at most so many more ops: forward ops run again at most once, ops of a swap run at most once."""
    able = [o for o, op in enumerate(problem.ops) if op.optional or not op.once]

    def going_on(order: tuple[int, ...], done: int) -> Iterator[tuple[int, ...]]:
        if done == len(problem.program):
            yield order
            return
        if len(order) - done == most:
            yield from going_on((*order, problem.program[done]), done + 1)
            return
        made = {s for o in order for s in problem.writes[o]}
        for o in able:
            if made.issuperset(problem.reads[o]) and order.count(o) == (0 if problem.ops[o].optional else 1):
                yield from going_on((*order, o), done)
        yield from going_on((*order, problem.program[done]), done + 1)

    return going_on((), 0)


@pytest.mark.parametrize(("copy", "drag", "swaps"), [(4.0, 3.0, 1), (14.0, 1.0, 1), (4.0, 3.0, 2), (25.0, 1.0, 2)])
def test_the_bound_against_every_order_of_a_tiny_problem(copy: float, drag: float, swaps: int) -> None:
    """With two swaps nothing is run again, so that there are few orders."""
    whole = chain(copy, layers=3, drag=drag)
    ops = whole.ops[: len(whole.program) + 3 * swaps]
    if swaps == 2:
        ops = tuple(replace(op, once=not op.optional) for op in ops)
    problem = Problem("tiny", whole.storages, ops)
    least: dict[int, float] = {}
    for order in every_order(problem, 5 if swaps == 1 else 6):
        timeline = simulate(problem, order)
        least[timeline.peak] = min(least.get(timeline.peak, float("inf")), timeline.time)
    lanes = Lanes(problem, tuple(swaps_of(problem).values()))
    assert len(lanes.swaps) == swaps
    bounds = {peak: [instant_bound(lanes, peak, t, seconds=LIMIT) for t in range(6)] for peak in least}
    for peak, found in bounds.items():
        best = min(time for other, time in least.items() if other <= peak)
        assert max(found) <= best - problem.base_time + 1e-6
    assert max(map(max, bounds.values())) > 0


def test_a_frontier_with_swaps_trades_time_for_bytes() -> None:
    problem = chain(25, layers=8)
    found = frontier(problem, points=5, time_limit=10)
    peaks = [point.peak for point in found]
    times = [point.time for point in found]
    assert peaks == sorted(peaks, reverse=True)
    assert times == sorted(times)
    assert found[0].overhead == 0
    assert len(found) > 2


def test_a_problem_with_lanes_is_planned_from_a_file(tmp_path: Path) -> None:
    save_problem(chain(5), tmp_path / "problem.json")
    assert load_problem(tmp_path / "problem.json") == chain(5)
    words = ["schedule", str(tmp_path / "problem.json"), "--budget", "46", "--time-limit", "2"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "schedule.json")])
    assert result.exit_code == 0, result.output
    found = load_schedule(tmp_path / "schedule.json")
    assert simulate(chain(5), found.ops).overhead == 0
