import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule, ScheduleError, verify
from lowtide.planning.simulate import overhead_of, peak_of, simulate
from tests.planning import exhaustive, naive
from tests.planning.strategies import orders, problems

CHAIN = Problem(
    "chain",
    (Storage(100, resident=True, keep=True, name="weight"), Storage(10), Storage(20), Storage(5, keep=True)),
    (Op("a", 3, (0,), (1,)), Op("b", 4, (1,), (2,), workspace=7), Op("c", 5, (1, 2), (3,), once=True)),
)


def test_a_chain_by_hand() -> None:
    timeline = simulate(CHAIN, (0, 1, 2))
    assert timeline.live == (110, 137, 135)
    assert (timeline.peak, timeline.peak_step, timeline.workspace, timeline.resident) == (137, 1, 7, 100)
    assert timeline.alive == ((2, 20), (1, 10))
    assert (timeline.time, timeline.overhead) == (12, 0)


def test_a_recomputed_value_is_dead_in_between() -> None:
    problem = Problem(
        "gap",
        (Storage(10), Storage(1), Storage(2), Storage(3)),
        (Op("a", 1, (), (0,)), Op("b", 1, (0,), (1,)), Op("c", 1, (1,), (2,)), Op("d", 1, (0, 2), (3,))),
    )
    assert simulate(problem, (0, 1, 2, 3)).live == (10, 11, 13, 15)
    assert simulate(problem, (0, 1, 2, 0, 3)).live == (10, 11, 3, 12, 15)
    assert simulate(problem, (0, 1, 2, 0, 3)).overhead == 0.25


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1), "op 2 ('c') never runs"),
        ((0, 1, 2, 2), "step 3: op 2 ('c') may run only once and ran at step 2"),
        ((1, 0, 2), "step 0: op 1 ('b') reads storage 1, which nothing has written yet"),
        ((0, 1, 7, 2), "step 2: there is no op 7"),
        ((0, -1, 1, 2), "step 1: there is no op -1"),
    ],
)
def test_an_order_that_cannot_run_is_named(order: tuple[int, ...], words: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        verify(CHAIN, Schedule(order))
    assert words in str(raised.value)


def test_first_runs_keep_the_program_order() -> None:
    free = Problem("free", (Storage(1), Storage(1)), (Op("a", 1, (), (0,)), Op("b", 1, (), (1,))))
    with pytest.raises(ScheduleError, match="first time before"):
        verify(free, Schedule((1, 0)))
    with pytest.raises(ScheduleError, match="is no op"):
        verify(free, Schedule((False, True)))


def test_bytes_off_the_device_do_not_count() -> None:
    problem = Problem(
        "swap",
        (Storage(8), Storage(8, off_device=True), Storage(2)),
        (
            Op("a", 1, (), (0,)),
            Op("offload", 1, (0,), (1,), optional=True),
            Op("b", 1, (), (2,)),
            Op("fetch", 1, (1,), (0,), optional=True),
            Op("c", 1, (0, 2), ()),
        ),
    )
    assert simulate(problem, (0, 1, 2, 3, 4)).live == (8, 8, 2, 10, 10)


IN_PLACE = Problem(
    "in place",
    (Storage(10), Storage(10), Storage(1), Storage(2)),
    (
        Op("a", 1, (), (0,)),
        Op("relu", 1, (0,), (1,), workspace=3, reuses=0),
        Op("b", 1, (1,), (2,)),
        Op("c", 1, (0, 2), (3,)),
    ),
)


def test_an_op_runs_in_place_where_nothing_reads_the_instance_again() -> None:
    out_of_place = simulate(IN_PLACE, (0, 1, 2, 3))
    assert out_of_place.live == (10, 23, 21, 13)
    assert out_of_place.alive == ((0, 10), (1, 10))
    in_place = simulate(IN_PLACE, (0, 1, 2, 0, 3))
    assert in_place.live == (10, 13, 11, 11, 13)
    assert (in_place.peak_step, in_place.alive, in_place.workspace) == (1, ((1, 10),), 3)


def test_a_kept_storage_is_not_taken_over() -> None:
    problem = Problem(
        "kept", (Storage(10, keep=True), Storage(10)), (Op("a", 1, (), (0,)), Op("b", 1, (0,), (1,), reuses=0))
    )
    assert simulate(problem, (0, 1)).live == (10, 20)
    assert simulate(problem, (0, 1, 0)).live == (10, 10, 10)


def test_overhead_of_a_program_without_time() -> None:
    problem = Problem("still", (Storage(1),), (Op("a", 0, (), (0,)),))
    assert (overhead_of(problem, 0), overhead_of(problem, 1)) == (0.0, float("inf"))


@settings(max_examples=300)
@given(st.data())
def test_equals_the_naive_simulator(data: st.DataObject) -> None:
    problem = data.draw(problems())
    problem.verify()
    order = data.draw(orders(problem))
    if not naive.runnable(problem, order):
        with pytest.raises(ScheduleError):
            simulate(problem, order)
        return
    timeline = simulate(problem, order)
    assert list(timeline.live) == naive.live(problem, order)
    assert timeline.peak == max(timeline.live) == timeline.live[timeline.peak_step] == peak_of(problem, order)
    assert sum(size for _, size in timeline.alive) + timeline.resident + timeline.workspace == timeline.peak
    assert timeline.time == sum(problem.ops[o].time for o in order)


@settings(max_examples=40)
@given(problems(max_ops=3, max_storages=5))
def test_exhaustive_search_equals_trying_every_order(problem: Problem) -> None:
    """Every order of up to five steps; longer ones are not needed to tell the search wrong."""
    found: dict[int, float] = {}
    for length in range(1, 6):
        for order in product(range(len(problem.ops)), repeat=length):
            if naive.runnable(problem, order):
                peak, took = max(naive.live(problem, order)), sum(problem.ops[o].time for o in order)
                found[peak] = min(took, found.get(peak, took))
    for budget in found:
        best = exhaustive.least_time(problem, budget)
        assert best is not None
        timeline = simulate(problem, best.order)
        assert timeline.peak <= budget
        assert timeline.time == best.value
        known = min(took for peak, took in found.items() if peak <= budget)
        assert best.value == known if len(best.order) <= 5 else best.value <= known
    floor = exhaustive.least_peak(problem)
    assert simulate(problem, floor.order).peak == floor.value
    assert floor.value <= min(found)


def test_ten_thousand_ops_are_simulated_fast() -> None:
    """The aim is well under 50 ms; the limit here leaves room for a busy machine."""
    count = 10_000
    storages = tuple(Storage(s % 97) for s in range(count))
    ops = tuple(Op("op", 1, tuple({max(0, o - 1), o // 2} - {o}), (o,)) for o in range(count))
    problem = Problem("long", storages, ops)
    simulate(problem, problem.program)
    took = []
    for _ in range(5):
        start = time.perf_counter()
        simulate(problem, problem.program)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.05
