"""Where the search uses what is compiled: walks, plans along the spine and the bound there."""

from collections.abc import Callable
from typing import Any

import pytest

from lowtide.planning.optimal import compiled
from lowtide.planning.optimal.certify import rank_instants
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.search import CERTIFY, run
from lowtide.planning.optimal.walks import along_the_spine, walk
from lowtide.planning.optimal.work import Allowance, working_within
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.synthetic import repeated_blocks


def _search(problem: Problem, share: float) -> tuple[Incumbent, list[str]]:
    view, said = ProgramView(problem), list[str]()
    room = int(view.live.max()) - problem.resident_bytes
    budget = problem.resident_bytes + int(share * room)
    return Incumbent(view, budget, 0, said.append), said


def test_what_the_bound_stores_becomes_a_plan_and_bounds_it() -> None:
    best, said = _search(repeated_blocks(10), 0.4)
    with working_within(Allowance.of(20.0, clock=False)):
        rank_instants(best)
        along_the_spine(best)
        coarse = best.bound
        run(CERTIFY, best)
    assert best.order is not None
    assert best.over(best.order) <= 0
    assert said[0].startswith("the best so far")  # before a finer spine or prices: along the first one
    assert 0 < coarse <= best.bound <= best.extra


def test_walks_take_packing_out_and_put_it_back() -> None:
    """What is made first is packed while a second value is there; a walk from there keeps to the budget."""
    storages = (Storage(4), Storage(1), Storage(3), Storage(1))
    ops = (
        Op("make", 9, (), (0,)),
        Op("fill", 1, (), (2,), workspace=2),
        Op("use", 1, (0, 2), (3,)),
        Op("pack", 1, (0,), (1,), optional=True),
        Op("unpack", 1, (1,), (0,), optional=True),
    )
    best, _ = _search(Problem("packed", storages, ops), 0.9)
    best.order, best.extra = [0, 3, 1, 4, 2], 2.0
    plain = best.plain()
    assert plain is not None
    assert plain.packed == {0}
    assert plain.stripped(best.order) == [0, 1, 2]
    assert plain.back([0, 1, 2]) == best.order
    with working_within(Allowance.of(0.3, clock=False)):
        walk(best)
    assert best.walks == 1
    assert best.order == [0, 3, 1, 4, 2]


def test_compiled_code_runs_where_no_folder_can_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def njit(function: Callable[[int], int], *, cache: bool = False, **options: Any) -> Callable[[int], int]:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(compiled, "njit", njit)
    assert compiled.entry(lambda x: x + 1)(2) == 3
    assert asked == [True, False]
