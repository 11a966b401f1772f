"""Parts that could take all of the time on problems of other shapes: they end with their share, and do more with it."""

import math
from collections.abc import Sequence

import pytest

from lowtide.planning.optimal import candidates, incumbent, plan, search
from lowtide.planning.optimal.beam import Beam
from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.incumbent import LONG, Incumbent
from lowtide.planning.optimal.prune import prune
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.work import Meter, charge, metered
from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import Schedule
from lowtide.planning.simulate import peak_of
from lowtide.planning.synthetic import random_layers, repeated_blocks


def _share(problem: Problem, share: float) -> int:
    room = peak_of(problem, problem.program) - problem.resident_bytes
    return problem.resident_bytes + int(share * room)


def test_one_sweep_leaves_out_what_only_served_a_run_that_is_left_out() -> None:
    x, y, wide, z = (
        Op("x", 9, (), (0,)),
        Op("y", 1, (0,), (1,)),
        Op("wide", 1, (1,), (2,), workspace=5),
        Op("z", 1, (1, 2), (3,)),
    )
    problem = Problem("chain", (Storage(10), Storage(1), Storage(10), Storage(1)), (x, y, wide, z))
    with metered(Meter(whole=0.0)):  # one sweep: x is looked at first, and cannot go while y runs again
        assert prune(Facts(problem), [0, 1, 2, 0, 1, 3], 21, rounds=1) == [0, 1, 2, 3]


def test_repair_gives_up_where_no_work_is_left() -> None:
    problem = repeated_blocks(6)
    facts, budget = Facts(problem), _share(problem, 0.7)
    with metered(Meter()) as meter:
        assert repair(facts, problem.program, budget) is not None
    with metered(Meter(whole=0.0)) as none:
        assert repair(facts, problem.program, budget) is None
    assert none.done < 0.2 * meter.done


def test_a_beam_gives_up_with_its_share_of_the_work() -> None:
    problem = random_layers(120, seed=1)
    with metered(Meter(whole=1.0)) as meter:
        assert Beam(Facts(problem), _share(problem, 0.6), 0, until=0.99).search(1) is None
    assert meter.done < 0.2


def test_a_beam_holds_what_is_kept_although_it_is_cheap_and_wanted_last() -> None:
    ops = (
        Op("a", 50, (), (0,)),
        Op("kept", 1, (0,), (1,)),
        Op("b", 50, (0,), (2,)),
        Op("c", 50, (2,), (3,)),
        Op("d", 50, (0, 3), (4,)),
    )
    problem = Problem("kept", (Storage(10), Storage(10, keep=True), Storage(10), Storage(10), Storage(5)), ops)
    assert Beam(Facts(problem), 35, 0).search(1) == [0, 1, 2, 3, 0, 4]


def test_the_program_order_is_repaired_where_no_other_policy_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.planning.optimal.work.GUARD", math.inf)
    problem, heard = random_layers(420, seed=3), list[str]()
    found = plan(problem, _share(problem, 0.9), time_limit=2, progress=heard.append)
    assert found.peak <= _share(problem, 0.9)
    assert "repair of the program order" in heard[1]


def test_a_beam_is_tried_where_the_gap_is_wide_also_beside_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []

    def note(best: Incumbent, widths: object) -> None:
        tried.append(best.order is not None)

    monkeypatch.setattr(search, "from_beam", note)
    problem = repeated_blocks(8)
    plan(problem, _share(problem, 0.25), time_limit=1)
    assert tried == [True]


def test_a_policys_order_of_many_lengths_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = repeated_blocks(4)
    first = problem.program[0]
    schedules = {
        "chen": Schedule((first, *problem.program)),
        "mutwo": Schedule((first,) * (LONG * len(problem.program)) + tuple(problem.program)),
    }

    class Known:
        def __init__(self, name: str) -> None:
            self.schedule = schedules[name]

        def plan(self, *_: object, **__: object) -> "Known":
            return self

    tried: list[int] = []

    def pruned(facts: Facts, order: Sequence[int], budget: int, *, seed: int, rounds: int) -> list[int]:
        tried.append(rounds)
        return list(order)

    monkeypatch.setattr(candidates, "policy", Known)
    monkeypatch.setattr(incumbent, "prune", pruned)
    with metered(Meter()) as meter:
        candidates.from_policies(Incumbent(Facts(problem), _share(problem, 1.0), meter, 0, lambda _: None))
    assert tried == [3, 0]


@pytest.mark.parametrize(("extra", "solved"), [(math.inf, 1), (0.0, 3)])
def test_far_from_the_bound_more_instants_leave_the_work_to_others(
    extra: float, solved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = repeated_blocks(4)
    solves: list[list[int]] = []

    class Asked:
        """Each takes a tenth of the work, and its order is over the budget elsewhere."""

        bound, finished, decision = -1.0, True, object()

        def __init__(self, _facts: Facts, _budget: int, instants: list[int], *_: object, **__: object) -> None:
            solves.append(list(instants))

        def solve(self, **_: object) -> "Asked":
            charge(1.0)
            return self

    monkeypatch.setattr(candidates, "Model", Asked)
    monkeypatch.setattr(Incumbent, "closed", False)
    monkeypatch.setattr(Incumbent, "offer_decision", lambda *_: list(problem.program))
    with metered(Meter(whole=10.0)) as meter:
        best = Incumbent(Facts(problem), _share(problem, 0.5), meter, 0, lambda _: None, extra=extra)
        candidates.from_instants(best, [len(problem.program) // 2], rounds=3, seconds=1.0)
    assert len(solves) == solved
