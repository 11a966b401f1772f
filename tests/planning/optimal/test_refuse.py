"""How inputs come together: proofs against exhaustive search."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.refuse import impossible_op
from lowtide.planning.problem import Op, Problem, Storage
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


@settings(max_examples=80)
@given(problem=problems(), data=st.data())
def test_a_proof_is_never_wrong(problem: Problem, data: st.DataObject) -> None:
    least = exhaustive.least_peak(problem).value
    assert impossible_op(ProgramView(problem), int(least), ops=9, sets=500) is None
    budget = data.draw(st.integers(0, int(least)))
    if impossible_op(ProgramView(problem), budget, ops=9, sets=500) is not None:
        assert budget < least
