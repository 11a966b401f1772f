"""The same problem, limit and seed give the same plan, in any process and beside other work."""

import json
import math
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from lowtide.planning.optimal import plan
from lowtide.planning.optimal.search import CUT
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import Allowance, allowance, charge, working_within
from lowtide.planning.policies import BudgetInfeasible, Plan
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import random_layers, repeated_blocks
from tests.zoo import often

PROBLEMS: dict[str, tuple[Callable[[], Problem], float]] = {
    "blocks": (lambda: repeated_blocks(6), 0.5),
    "many blocks": (lambda: repeated_blocks(20), 0.3),
    "layers": (lambda: random_layers(60, seed=1), 0.7),
    "tight layers": (lambda: random_layers(40, seed=2), 0.5),
}
LIMIT = 3.0


def _planned(name: str, limit: float = LIMIT) -> list[object]:
    """What must not differ: the order and the bound, or the least peak."""
    make, share = PROBLEMS[name]
    problem = make()
    with pytest.MonkeyPatch.context() as patch:
        busy = replace(SETTINGS, guard=math.inf)  # this machine may be arbitrarily busy
        patch.setattr("lowtide.planning.optimal.work.SETTINGS", busy)
        try:
            found = plan(problem, _budget(problem, share), time_limit=limit)
        except BudgetInfeasible as none:
            return [none.floor, none.proven]
    assert found.note != CUT
    return [list(found.schedule.ops), found.bound]


def _budget(problem: Problem, share: float) -> int:
    peak = simulate(problem, problem.program).peak
    return problem.resident_bytes + int(share * (peak - problem.resident_bytes))


def _spin() -> None:
    while True:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", often(PROBLEMS, ["tight layers"]))
def test_twice_in_a_process_and_in_another_one_beside_a_busy_loop(name: str) -> None:
    first = _planned(name)
    busy = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    busy.start()
    try:
        assert _planned(name) == first
        code = f"import json; from {__name__} import _planned; print(json.dumps(_planned({name!r})))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    finally:
        busy.kill()
        busy.join()
    assert json.loads(other.stdout) == first


@pytest.mark.slow
def test_the_clock_cuts_what_takes_far_longer_than_it_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = repeated_blocks(20)
    monkeypatch.setattr("lowtide.planning.optimal.work.SETTINGS", replace(SETTINGS, given_out=100.0))
    began = time.perf_counter()
    found = plan(problem, _budget(problem, 0.3), time_limit=3)
    assert isinstance(found, Plan)
    assert found.note == CUT
    assert found.seconds <= time.perf_counter() - began


def test_work_is_charged_to_the_search_that_runs() -> None:
    charge(1.0)  # to nobody
    assert allowance().left() == float("inf")
    with working_within(Allowance(2.0)) as outer:
        charge(0.5)
        with working_within(Allowance(1.0)):
            charge(0.25)
            assert allowance().left() == 0.75
        assert outer.left() == 1.5
        assert outer.keeping(0.25).keeping(0.5).left() == 0.0
        assert outer.left() == 1.5  # what is kept is kept by those that were told to
        outer.meter.deadline = 0.0
        assert outer.left() < 0
        assert outer.meter.cut
