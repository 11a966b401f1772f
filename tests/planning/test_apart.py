"""Planning in a process of its own gives what planning here gives, and ends with its parent's wish."""

import subprocess
from typing import Any

import pytest

from lowtide.planning.apart import LARGE, PlannerGone, apart, planner
from lowtide.planning.policies import BudgetInfeasible, policy
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import repeated_blocks

PROBLEM = repeated_blocks(3)
BUDGET = int(0.7 * simulate(PROBLEM, PROBLEM.program).peak)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that were started."""
    found: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        found.append(real(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return found


def test_the_plan_is_the_same() -> None:
    said: list[str] = []
    here = policy("optimal").plan(PROBLEM, BUDGET, time_limit=60.0)
    there = planner("optimal", LARGE).plan(PROBLEM, BUDGET, time_limit=60.0, progress=said.append)
    assert (there.schedule, there.bound, there.note) == (here.schedule, here.bound, here.note)
    assert said


def test_what_cannot_be_is_said_in_the_same_words() -> None:
    with pytest.raises(BudgetInfeasible) as here:
        policy("chen").plan(PROBLEM, 1)
    with pytest.raises(BudgetInfeasible) as there:
        planner("chen", LARGE).plan(PROBLEM, 1)
    assert str(there.value) == str(here.value)
    assert vars(there.value) == vars(here.value)


def test_a_small_step_is_planned_here(started: list[subprocess.Popen[bytes]]) -> None:
    planner("optimal", LARGE - 1).plan(PROBLEM, BUDGET, time_limit=1.0)
    assert not started


def test_a_process_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlannerGone, match="exit code 1 and without a plan"):
        apart(int, "no number")
    assert "TypeError" in capfd.readouterr().err


def test_an_interrupt_ends_it(started: list[subprocess.Popen[bytes]]) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planner("optimal", LARGE).plan(PROBLEM, BUDGET, time_limit=600.0, progress=interrupt)
    assert started[0].returncode is not None
