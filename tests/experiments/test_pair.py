"""With and without a plan take turns, as far as memory allows."""

import pytest

from lowtide.experiments import pair
from lowtide.experiments.case import Outcome, Turns
from lowtide.experiments.pair import BASE, SLACK, choose_turns, run_pair, work_of
from lowtide.experiments.sweep.run import both
from tests.experiments.workers import Pretenders, settings

GIB = 2**30
BOTH = int(SLACK * 12 * GIB) + 2 * BASE
"""What a step of 4 GiB and one of 8 GiB may take."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to wait for here."""
    monkeypatch.setattr(pair, "SETTLE", 0.0)


def test_steps_take_turns_and_who_begins_changes() -> None:
    workers = Pretenders()
    work: list[float] = []
    cases = run_pair(*both(settings()), lambda _, done: work.append(done), start=workers, room=lambda: 2**40)
    assert workers.told == [
        *("with begins", "without begins", "without step", "with step", "with step", "without step"),
        *("without step", "with step", "with op_by_op", "without op_by_op", "without is gone", "with is gone"),
    ]
    assert [case.settings.planned for case in cases] == [True, False]
    assert {case.turns for case in cases} == {Turns.STEP_BY_STEP}
    assert cases[0].run == cases[1].run != ""
    assert sum(work) == sum(map(work_of, both(settings())))


def test_where_both_peaks_do_not_fit_memory_is_given_back_between_steps() -> None:
    workers = Pretenders(peaks=(4 * GIB, 8 * GIB))
    cases = run_pair(*both(settings(op_runs=0)), lambda *_: None, start=workers, room=lambda: BOTH - 1)
    assert {case.turns for case in cases} == {Turns.GIVING_BACK}
    assert workers.told[2:6] == ["without step", "without give_back", "with step", "with give_back"]


def test_where_even_that_does_not_fit_they_run_one_after_another() -> None:
    workers = Pretenders(peaks=(4 * GIB, 8 * GIB))
    cases = run_pair(*both(settings()), lambda *_: None, start=workers, room=lambda: 12 * GIB)
    assert {case.turns for case in cases} == {Turns.ONE_AFTER_ANOTHER}
    assert workers.told.index("with is gone") < workers.told.index("without begins")
    assert workers.told.count("without step") == workers.told.count("with step") == 3


def test_the_other_case_is_run_where_no_plan_fits() -> None:
    workers = Pretenders(fails={(True, 4): Outcome.INFEASIBLE})
    planned, plain = run_pair(*both(settings()), lambda *_: None, start=workers, room=lambda: 2**40)
    assert (planned.outcome, plain.outcome) == (Outcome.INFEASIBLE, Outcome.TRAINED)
    assert plain.turns is Turns.ALONE
    assert workers.told.count("without step") == 3


@pytest.mark.parametrize(
    ("room", "turns"),
    [
        (BOTH, Turns.STEP_BY_STEP),
        (BOTH - 1, Turns.GIVING_BACK),
        (BOTH - (4 * SLACK * GIB + BASE) // 2, Turns.GIVING_BACK),
        (BOTH - (4 * SLACK * GIB + BASE) // 2 - 1, Turns.ONE_AFTER_ANOTHER),
    ],
)
def test_the_choice_of_turns(room: float, turns: Turns) -> None:
    assert choose_turns(int(room), (4 * GIB, 8 * GIB)) is turns
