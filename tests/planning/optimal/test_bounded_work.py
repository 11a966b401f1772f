"""Parts that could take all of the time on problems of other shapes: they end with their share, and do more with it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lowtide.planning.optimal import build, certify, incumbent, plan
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.prune import prune
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import Allowance, charge, working_within
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
    with working_within(Allowance(whole=0.0)):  # one sweep: x is looked at first, and cannot go while y runs again
        assert prune(ProgramView(problem), [0, 1, 2, 0, 1, 3], 21) == [0, 1, 2, 3]


def test_repair_gives_up_where_no_work_is_left() -> None:
    problem = repeated_blocks(6)
    view, budget = ProgramView(problem), _share(problem, 0.7)
    with working_within(Allowance()) as allowance:
        assert repair(view, problem.program, budget) is not None
    with working_within(Allowance(whole=0.0)) as none:
        assert repair(view, problem.program, budget) is None
    assert none.meter.done < 0.2 * allowance.meter.done


def test_the_program_order_is_repaired_where_no_other_policy_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.planning.optimal.work.SETTINGS", replace(SETTINGS, guard=math.inf))
    problem, heard = random_layers(420, seed=3), list[str]()
    found = plan(problem, _share(problem, 0.9), time_limit=2, progress=heard.append)
    assert found.peak <= _share(problem, 0.9)
    first = next(i for i, said in enumerate(heard) if "%" in said)
    assert heard[first - 1] == "repair"


def test_a_policys_order_of_many_lengths_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = repeated_blocks(4)
    first = problem.program[0]
    schedules = {
        "chen": Schedule((first, *problem.program)),
        "mutwo": Schedule((first,) * (SETTINGS.long * len(problem.program)) + tuple(problem.program)),
    }

    class Known:
        def __init__(self, name: str) -> None:
            self.schedule = schedules[name]

        def plan(self, *_: object, **__: object) -> "Known":
            return self

    tried: list[int] = []

    def pruned(view: ProgramView, order: Sequence[int], budget: int, *, seed: int) -> list[int]:
        tried.append(len(order))
        return list(order)

    monkeypatch.setattr(build, "policy", Known)
    monkeypatch.setattr(incumbent, "prune", pruned)
    build.from_policies(Incumbent(ProgramView(problem), _share(problem, 1.0), 0, lambda _: None))
    assert tried == [len(problem.program) + 1]


@pytest.mark.parametrize(("extra", "solved"), [(math.inf, 1), (0.0, 10)])
def test_far_from_the_bound_more_instants_leave_the_work_to_others(
    extra: float, solved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = repeated_blocks(4)
    solves: list[list[int]] = []

    class Asked:
        """Each takes a tenth of the work, and its order is over the budget elsewhere."""

        bound, finished, decision = -1.0, True, object()

        def __init__(self, _view: ProgramView, _budget: int, instants: list[int], *_: object, **__: object) -> None:
            solves.append(list(instants))

        def solve(self, **_: object) -> "Asked":
            charge(1.0)
            return self

    monkeypatch.setattr(certify, "Model", Asked)
    monkeypatch.setattr(Incumbent, "closed", False)
    monkeypatch.setattr(Incumbent, "offer_decision", lambda *_: list(problem.program))
    with working_within(Allowance(whole=10.0)):
        best = Incumbent(ProgramView(problem), _share(problem, 0.5), 0, lambda _: None, extra=extra)
        best.ranked = [(0.0, len(problem.program) // 2)]
        certify.from_instants(best)
    assert len(solves) == solved
