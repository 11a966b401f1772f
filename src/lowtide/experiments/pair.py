"""The two cases of one batch size, with a plan and without, run beside each other.

Times can be compared only within the same minutes on a machine that others use too. So both processes stay alive and
take turns: a step of one, then a step of the other, and who begins changes from round to round. Each has its own
memory, so neither's peak disturbs the other's.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from lowtide.experiments.case import Case, CaseSettings, Turns
from lowtide.experiments.machine import available_bytes
from lowtide.experiments.worker import ProcessWorker, Worker

Start = Callable[[CaseSettings], Worker]
Tell = Callable[[str, float], None]
"""Told what was done, and how much work that was, in steps."""

STARTUP_STEPS = {True: 7.0, False: 1.0}
"""About what starting takes in steps, with a plan and without."""
SLACK = 1.125
"""Times a step's bytes: what a process may really take, holes and libraries included."""
BASE = 2**30
"""Bytes of a process beside its steps: Python, torch, the planner."""
SETTLE = 0.2
"""Seconds between turns, in which the threads of the one that waits fall asleep."""


def work_of(settings: CaseSettings) -> float:
    """Of one case, in steps."""
    return STARTUP_STEPS[settings.planned] + settings.warmup + settings.steps + settings.op_runs


def run_pair(
    planned: CaseSettings,
    plain: CaseSettings,
    tell: Tell,
    *,
    start: Start = ProcessWorker,
    room: Callable[[], int] = available_bytes,
) -> tuple[Case, Case]:
    """The case with a plan and the one without."""
    run = uuid.uuid4().hex
    free = room()
    with start(planned) as worker:
        tell("planned", STARTUP_STEPS[True])
        turns = choose_turns(free, worker.peaks)
        if turns in (Turns.STEP_BY_STEP, Turns.GIVING_BACK):
            with start(plain) as other:
                tell("built", STARTUP_STEPS[False])
                _take_turns([other, worker], planned, tell, gives_back=turns is Turns.GIVING_BACK)
                cases = worker.end(), other.end()
        else:
            _take_turns([worker], planned, tell)
            first = worker.end()
    if turns in (Turns.ONE_AFTER_ANOTHER, Turns.ALONE):
        with start(plain) as other:
            tell("built", STARTUP_STEPS[False])
            _take_turns([other], plain, tell)
            cases = first, other.end()
    mine, theirs = (replace(case, run=run, turns=turns) for case in cases)
    return mine, theirs


def choose_turns(free: int, peaks: tuple[int, int] | None) -> Turns:
    """How both go into `free` bytes; `peaks` are of a step with the plan and without it."""
    if peaks is None:
        return Turns.ALONE
    planned, plain = (int(SLACK * peak) + BASE for peak in peaks)
    if planned + plain <= free:
        return Turns.STEP_BY_STEP
    # Between its steps a process then holds parameters and optimizer state, which are less than half of a planned step
    # wherever memory is short.
    if max(planned, plain) + min(planned, plain) // 2 <= free:
        return Turns.GIVING_BACK
    return Turns.ONE_AFTER_ANOTHER


def _take_turns(workers: Sequence[Worker], settings: CaseSettings, tell: Tell, *, gives_back: bool = False) -> None:
    """All steps, then all op-by-op runs; every round begins with another worker."""
    rounds = ["step"] * (settings.warmup + settings.steps) + ["op_by_op"] * settings.op_runs
    for number, word in enumerate(rounds):
        for worker in workers[:: -1 if number % 2 else 1]:
            if len(workers) > 1:
                time.sleep(SETTLE)
            worker.do(word)
            if gives_back:
                worker.do("give_back")
            tell(f"{word.replace('_', ' ')} {number + 1} of {len(rounds)}", 1.0)
