"""How inputs come together: proofs against exhaustive search, and ways through the program within the budget."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal.gather import Gather, impossible_op
from lowtide.planning.optimal.greedy import Greedy
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule, verify
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import random_layers, repeated_blocks
from tests.planning import exhaustive
from tests.planning.strategies import problems


def _join() -> Problem:
    """Two values of 4 bytes, each made of one of 5 bytes, are read together."""
    storages = (Storage(5), Storage(4), Storage(5), Storage(4), Storage(1))
    ops = (
        Op("a", 1, (), (0,)),
        Op("b", 1, (0,), (1,)),
        Op("c", 1, (), (2,)),
        Op("d", 1, (2,), (3,)),
        Op("e", 1, (1, 3), (4,)),
    )
    return Problem("join", storages, ops)


def test_the_value_made_last_stands_beside_all_others() -> None:
    view = ProgramView(_join())
    assert int(view.least.max()) == 9  # no op alone needs more, but b or d is made beside the other one
    assert impossible_op(view, 12, ops=5, sets=50) == 4
    assert impossible_op(view, 13, ops=5, sets=50) is None


def test_a_trace_leads_from_nothing_to_the_inputs() -> None:
    gather = Gather(ProgramView(_join()), 13, certify=True)
    path, certain = gather.trace(gather.reads[4], most=50)
    assert certain
    assert path is not None
    assert [o for o, _ in path] in ([0, 1, 2, 3], [2, 3, 0, 1])
    there, _ = gather.trace(gather.reads[4], most=50, there=gather.mask([1, 2]))
    assert [o for o, _ in there or []] == [3]


@settings(max_examples=80)
@given(problem=problems(), data=st.data())
def test_a_proof_is_never_wrong(problem: Problem, data: st.DataObject) -> None:
    least = exhaustive.least_peak(problem).value
    assert impossible_op(ProgramView(problem), int(least), ops=9, sets=500) is None
    budget = data.draw(st.integers(0, int(least)))
    if impossible_op(ProgramView(problem), budget, ops=9, sets=500) is not None:
        assert budget < least


def test_where_nothing_must_be_held_the_greedy_way_reaches_the_floor_and_the_proof_meets_it() -> None:
    problem = random_layers(30, seed=5)
    view = ProgramView(problem)
    low, high = 0, simulate(problem, problem.program).peak
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if impossible_op(view, middle, ops=30, sets=20_000) is not None else (low, middle)
    order = Greedy(view, high).search()
    assert order is not None
    verify(problem, Schedule(tuple(order)))
    assert simulate(problem, order).peak <= high


def test_ways_are_valid_and_fit_also_with_updates_and_workspaces() -> None:
    problem = repeated_blocks(4)
    peak = simulate(problem, problem.program).peak
    for share in (0.8, 0.5, 0.3):
        budget = problem.resident_bytes + int(share * (peak - problem.resident_bytes))
        order = Greedy(ProgramView(problem), budget).search()
        assert order is not None
        verify(problem, Schedule(tuple(order)))
        assert simulate(problem, order).peak <= budget
