import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import ScheduleError
from lowtide.planning.simulate import simulate
from lowtide.planning.simulate_incremental import IncrementalTimeline
from tests.planning.strategies import problems


def test_a_recomputation_inserted_moved_and_removed() -> None:
    problem = Problem(
        "gap",
        (Storage(10), Storage(1), Storage(2), Storage(3)),
        (Op("a", 1, (), (0,)), Op("b", 1, (0,), (1,)), Op("c", 1, (1,), (2,)), Op("d", 1, (0, 2), (3,))),
    )
    timeline = IncrementalTimeline(problem, problem.program)
    assert timeline.insert(3, 0) == 15
    assert timeline.live == (10, 11, 3, 12, 15)
    assert timeline.positions(0) == (0, 3)
    timeline.move(3, 2)
    assert timeline.order == (0, 1, 0, 2, 3)
    assert timeline.live == (10, 11, 11, 13, 15)
    timeline.remove(2)
    assert timeline.order == problem.program
    with pytest.raises(ScheduleError, match="never runs"):
        timeline.remove(1)
    assert timeline.live == simulate(problem, problem.program).live


def edit(timeline: IncrementalTimeline, kind: str, at: int, o: int, to: int) -> int:
    if kind == "insert":
        return timeline.insert(at, o)
    return timeline.remove(at) if kind == "remove" else timeline.move(at, to)


@settings(max_examples=200)
@given(st.data())
def test_equals_the_full_simulation_after_any_edits(data: st.DataObject) -> None:
    problem = data.draw(problems())
    timeline = IncrementalTimeline(problem, problem.program)
    order = list(problem.program)
    for _ in range(data.draw(st.integers(1, 8))):
        edited = list(order)
        kind = data.draw(st.sampled_from(["insert", "insert", "remove", "move"]))
        at = data.draw(st.integers(0, len(order) - (kind != "insert")))
        o = data.draw(st.integers(0, len(problem.ops) - 1))
        to = data.draw(st.integers(0, len(order) - 1))
        if kind == "insert":
            edited.insert(at, o)
        else:
            taken = edited.pop(at)
            if kind == "move":
                edited.insert(to, taken)
        try:
            expected = simulate(problem, edited) if edited else None
        except ScheduleError:
            expected = None
        if expected is None:
            with pytest.raises(ScheduleError):
                edit(timeline, kind, at, o, to)
        else:
            assert edit(timeline, kind, at, o, to) == expected.peak
            order = edited
        after = simulate(problem, order)
        assert timeline.order == tuple(order)
        assert timeline.live == after.live
        assert (timeline.peak_step, timeline.time) == (after.peak_step, after.time)
