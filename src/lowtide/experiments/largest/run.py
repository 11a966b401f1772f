"""The largest batch that trains under a memory limit: doubling, then bisection; each trial in a process of its own."""

from collections.abc import Callable
from dataclasses import replace

from lowtide.experiments.case import Case, CaseSettings, Outcome
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.machine import available_bytes
from lowtide.experiments.pair import BASE, SLACK, Start
from lowtide.experiments.worker import ProcessWorker

Say = Callable[[str], None]


def largest_that(trains: Callable[[int], bool], *, first: int, most: int, within: float) -> int:
    """The largest number up to `most` for which `trains` holds, which then also holds for all smaller ones; 0 if none.

    Ends where the gap to the smallest that was seen to fail is one, or `within` as a share of what trains.
    """
    good, bad, size = 0, None, min(first, most)
    while bad is None and good < most:
        if trains(size):
            good, size = size, min(2 * size, most)
        else:
            bad = size
    while bad is not None and bad - good > max(1, int(within * good)):
        size = (good + bad) // 2
        if trains(size):
            good = size
        else:
            bad = size
    return good


def find_largest(
    first: CaseSettings,
    share: str,
    *,
    most: int,
    within: float,
    say: Say,
    start: Start = ProcessWorker,
    room: Callable[[], int] = available_bytes,
) -> Largest:
    """Search eagerly and with a plan, then measure both at the smallest batch that fails eagerly.

    `share` is the budget there, of what eager needs; in the search the budget is all that the limit leaves.
    """
    assert first.memory_limit_B is not None
    trials: list[Case] = []

    def trains(size: int, *, planned: bool) -> bool:
        say(f"{'with a plan' if planned else 'eager'}, batch size {size}")
        case = _trial(replace(first, batch_size=size, planned=planned), start)
        trials.append(case)
        return case.outcome is Outcome.TRAINED

    eager = largest_that(lambda size: trains(size, planned=False), first=1, most=most, within=within)
    largest_that(lambda size: trains(size, planned=True), first=max(1, 2 * eager), most=most, within=within)
    found = Largest(trials[0].model, first.memory_limit_B, within, most, first.machine, tuple(trials), None, None)
    failing = found.failed(planned=False)
    if failing is None:
        return found
    say(f"with a plan at {share}, batch size {failing}")
    there = replace(first, batch_size=failing, planned=True, budget=share)
    planned = _trial(there, start)
    need = None
    plan = planned.plan
    if plan is None or SLACK * plan.figures.unplanned_peak_B + BASE <= room():
        say(f"eager without the limit, batch size {failing}")
        need = _trial(replace(there, planned=False, budget=None, memory_limit_B=None), start)
    return replace(found, eager_need=need, planned_there=planned)


def _trial(settings: CaseSettings, start: Start) -> Case:
    with start(settings) as worker:
        for _ in range(settings.warmup + settings.steps):
            worker.do("step")
        return worker.end()
