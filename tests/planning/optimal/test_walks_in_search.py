"""Where the search uses what is compiled: walks, plans along the spine and the bound there."""

from collections.abc import Callable
from typing import Any

import pytest

from lowtide.planning.optimal import compiled, search
from lowtide.planning.optimal.candidates import from_regrowth, from_spine
from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.spine.bound import spine_bound
from lowtide.planning.optimal.work import Meter, metered
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.synthetic import repeated_blocks


def _search(problem: Problem, share: float) -> tuple[Incumbent, list[str]]:
    facts, said = Facts(problem), list[str]()
    room = int(facts.live.max()) - problem.resident_bytes
    budget = problem.resident_bytes + int(share * room)
    return Incumbent(facts, budget, Meter.of(20.0), 0, said.append), said


def test_what_the_bound_stores_becomes_a_plan() -> None:
    best, said = _search(repeated_blocks(10), 0.4)
    with metered(best.meter):
        from_spine(best, int(best.facts.live.argmax()), 0.02)
    assert best.order is not None
    assert best.over(best.order) <= 0
    assert said[-1].endswith("along the spine")


def test_the_search_takes_the_bound_along_the_spine() -> None:
    best, _ = _search(repeated_blocks(8), 0.5)
    top = int(best.facts.live.argmax())
    with metered(best.meter):
        best.offer(best.facts.problem.program, "repair of the program order")
        grouped = spine_bound(best.facts, best.budget, top, known=0.0, left=best.left)
        search._bound_more(best, top, best.facts.problem.base_time / best.budget, near=True)
    assert 0 < grouped <= best.bound <= best.extra


def test_orders_with_optional_runs_are_left_alone() -> None:
    """Without its optional run the order would be over the budget, and walks would begin from somewhere else."""
    storages = (Storage(4), Storage(1), Storage(3), Storage(1))
    ops = (
        Op("make", 9, (), (0,)),
        Op("fill", 1, (), (2,)),
        Op("use", 1, (0, 2), (3,)),
        Op("pack", 1, (0,), (1,), optional=True),
        Op("unpack", 1, (1,), (0,), optional=True),
    )
    best, _ = _search(Problem("packed", storages, ops), 1.0)
    best.order, best.extra = [0, 3, 1, 4, 2], 2.0
    with metered(best.meter):
        from_regrowth(best, 0.002)
        assert best.walks == 0
        best.order, best.extra = [0, 1, 0, 2], 9.0
        from_regrowth(best, 0.002)
    assert best.walks == 1


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
