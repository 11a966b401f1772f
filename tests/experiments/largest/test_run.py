"""The search for the largest batch, and what is measured at the first that fails eagerly."""

import pytest

from lowtide.experiments.case import Outcome
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.largest.run import find_largest, largest_that
from tests.experiments.workers import Pretenders, settings


@pytest.mark.parametrize("first", [1, 3, 64])
@pytest.mark.parametrize("answer", [0, 1, 2, 3, 7, 31, 32, 99, 100])
def test_the_search_is_exact_and_short(answer: int, first: int) -> None:
    asked: list[int] = []

    def trains(size: int) -> bool:
        asked.append(size)
        return size <= answer

    assert largest_that(trains, first=first, most=100, within=0.0) == answer
    assert len(asked) == len(set(asked)) <= 15
    assert max(asked) <= 100


def test_the_search_may_end_early() -> None:
    asked: list[int] = []

    def trains(size: int) -> bool:
        asked.append(size)
        return size <= 99

    found = largest_that(trains, first=1, most=1000, within=0.25)
    assert found <= 99
    smallest_failing = min(size for size in asked if size > 99)
    assert smallest_failing - found <= max(1, found // 4)


def _search(eager: int, planned: int, most: int = 64) -> tuple[Largest, Pretenders]:
    fails = {(False, size): Outcome.OUT_OF_MEMORY for size in range(eager + 1, most + 1)}
    fails |= {(True, size): Outcome.INFEASIBLE for size in range(planned + 1, most + 1)}
    workers = Pretenders(fails=fails, only_limited=True)
    first = settings(planned=False, budget=None, memory_limit_B=2**30, steps=1, op_runs=0)
    found = find_largest(first, "68%", most=most, within=0.0, say=lambda _: None, start=workers, room=lambda: 2**40)
    return found, workers


def test_both_are_searched_for_under_the_limit() -> None:
    found, workers = _search(5, 21)
    assert (found.trained(planned=False), found.failed(planned=False)) == (5, 6)
    assert (found.trained(planned=True), found.failed(planned=True)) == (21, 22)
    assert workers.alive == 0
    assert all(case.settings.memory_limit_B == 2**30 for case in found.trials)
    assert all(case.settings.budget is None for case in found.trials), "all that the limit leaves"
    assert found.base_B == 7


def test_at_the_first_that_fails_eagerly_both_are_measured() -> None:
    found, _ = _search(5, 21)
    assert found.planned_there is not None
    assert found.planned_there.settings.batch_size == 6
    assert found.planned_there.settings.budget == "68%"
    assert found.planned_there.settings.memory_limit_B == 2**30
    assert found.eager_need is not None
    assert found.eager_need.settings.batch_size == 6
    assert found.eager_need.settings.memory_limit_B is None
    assert not found.eager_need.settings.planned


def test_nothing_trains_or_everything_does() -> None:
    nothing, _ = _search(0, 0)
    assert (nothing.trained(planned=False), nothing.trained(planned=True)) == (0, 0)
    everything, workers = _search(8, 8, most=8)
    assert (everything.trained(planned=True), everything.failed(planned=True)) == (8, None)
    assert everything.planned_there is None
    assert workers.alive == 0
