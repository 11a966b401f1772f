import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.lanes import clock
from lowtide.planning.problem import COMPUTE, Op, Problem, ProblemError, Storage
from lowtide.planning.problem_file import load_problem, save_problem
from lowtide.planning.simulate import peak_of, simulate
from tests.planning import events, naive
from tests.planning.strategies import orders, problems, swapped_orders, with_lanes

X, AWAY, Y = 0, 1, 2
SWAP = Problem(
    "swap",
    (Storage(8, name="x"), Storage(8, off_device=True), Storage(2, name="y"), Storage(1), Storage(1)),
    (
        Op("a", 1, (), (X,)),
        Op("b", 4, (), (Y,)),
        Op("c", 3, (Y,), (3,)),
        Op("d", 1, (X, 3), (4,)),
        Op("offload", 2, (X,), (AWAY,), optional=True, lane="copy"),
        Op("release", 0, (X, AWAY), (), optional=True),
        Op("prefetch", 2, (AWAY,), (X,), optional=True, lane="copy"),
    ),
)
A, B, C, D, OFFLOAD, RELEASE, PREFETCH = range(7)


def test_a_swap_by_hand() -> None:
    """Out while b runs, in while c runs: nothing waits, and x is gone in between."""
    order = (A, OFFLOAD, B, RELEASE, PREFETCH, C, D)
    timeline = simulate(SWAP, order)
    assert timeline.live == (8, 8, 10, 10, 10, 11, 10)
    assert (timeline.time, timeline.waited, timeline.overhead) == (9, 0, 0)
    ran = clock(SWAP, order)
    assert ran.starts == (0, 1, 1, 5, 5, 5, 8)
    assert ran.ends == (1, 3, 5, 5, 7, 8, 9)


def test_bytes_are_there_until_compute_has_waited_and_from_where_the_read_starts() -> None:
    assert simulate(SWAP, (A, OFFLOAD, RELEASE, B, C, PREFETCH, D)).live == (8, 8, 8, 2, 3, 9, 10)
    assert simulate(SWAP, (A, OFFLOAD, B, C, PREFETCH, D)).live == (8, 8, 10, 11, 17, 18)


def test_compute_waits_for_what_is_not_there_yet() -> None:
    timeline = simulate(SWAP, (A, OFFLOAD, RELEASE, B, C, PREFETCH, D))
    assert (timeline.time, timeline.waited) == (13, 4)


def test_a_copy_behind_another_one_waits_for_it() -> None:
    """Two offloads in a row: the second is over at 5, and what releases it waits."""
    order = (A, OFFLOAD, OFFLOAD, RELEASE, B, PREFETCH, C, D)
    assert clock(SWAP, order).ends[:4] == (1, 3, 5, 5)


def test_what_nothing_waits_for_stays_to_the_end() -> None:
    assert simulate(SWAP, (A, B, C, D, OFFLOAD)).live == (8, 10, 11, 10, 8)
    assert simulate(SWAP, (A, B, C, D, OFFLOAD)).waited == 2
    late = Problem("late", SWAP.storages, (*SWAP.ops[:4], Op("e", 5, (4,), ()), *SWAP.ops[4:]))
    assert simulate(late, (0, 5, 1, 2, 3, 4)).live == (8, 8, 10, 11, 10, 9)


def test_what_a_lane_cannot_hold(tmp_path: Path) -> None:
    """Collectives under way are ops of a program on a lane, but only in plans: what is searched does them at once."""
    op = Op("copy", 1, (X,), (AWAY,), workspace=3, optional=True, lane="copy")
    with pytest.raises(ProblemError, match="neither have workspace"):
        Problem("bad", SWAP.storages, (*SWAP.ops, op)).verify()
    flying = Problem("bad", SWAP.storages, (*SWAP.ops, Op("copy", 1, (X,), (AWAY,), lane="copy")))
    flying.verify()
    save_problem(flying, tmp_path / "problem.json")
    with pytest.raises(ProblemError, match="belong to compute"):
        load_problem(tmp_path / "problem.json")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_equals_event_by_event(data: st.DataObject) -> None:
    problem = data.draw(with_lanes(problems()))
    problem.verify()
    order = data.draw(st.one_of(orders(problem), swapped_orders(problem)))
    if not naive.runnable(problem, order):
        return
    timeline = simulate(problem, order)
    happened = events.run(problem, order, lambda step: problem.ops[order[step]].time)
    ran = clock(problem, order)
    assert list(ran.starts) == [happened.began[step] for step in range(len(order))]
    assert list(ran.ends) == [happened.ended[step] for step in range(len(order))]
    assert timeline.time == happened.time
    assert list(timeline.live) == [events.known_bytes(problem, order, step) for step in range(len(order))]
    assert timeline.peak == max(timeline.live) == peak_of(problem, order)
    assert sum(size for _, size in timeline.alive) + timeline.resident + timeline.workspace == timeline.peak
    busy = sum(problem.ops[o].time for o in order if problem.ops[o].lane == COMPUTE)
    assert timeline.time == busy + timeline.waited


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 10**6))
def test_whatever_the_timing_no_more_is_needed(data: st.DataObject, seed: int) -> None:
    """With any times at all, what is in use at a compute step is within what the order reckons with."""
    problem = data.draw(with_lanes(problems()))
    order = data.draw(swapped_orders(problem))
    if not naive.runnable(problem, order):
        return
    random_times = random.Random(seed)
    took = [random_times.choice([0, 1, 3, 20]) for _ in order]
    happened = events.run(problem, order, lambda step: took[step])
    live = simulate(problem, order).live
    for step, o in enumerate(order):
        if problem.ops[o].lane == COMPUTE:
            assert events.needed_bytes(problem, order, happened, step) <= live[step]
