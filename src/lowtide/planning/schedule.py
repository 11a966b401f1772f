"""A schedule: the order in which ops run. An op that stands twice is recomputed; nothing is freed by command."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import InputError, shown
from lowtide.files import write_text
from lowtide.planning.lanes import Pending
from lowtide.planning.problem import COMPUTE, Problem
from lowtide.planning.reading import expect_format, id_list, read_object

FORMAT = "lowtide-schedule/1"


class ScheduleError(InputError):
    """An order that cannot run; the message names the step, the op and the storage."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Ops in the order they run, by their place in the problem."""

    ops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instances:
    """Every write of an order yields an instance of a storage, alive from step `born` to step `last`.

    That is its last read, or the step before it where the reader runs in place and takes over its bytes. What an op of
    another lane reads or writes lives until a compute op waits for it, by reading what it wrote.
    """

    storage: list[int]
    born: list[int]
    last: list[int]


def instances(problem: Problem, order: Sequence[int], *, copying: bool = True) -> Instances:
    """What lives from when to when while `order` runs; a ScheduleError where it cannot run.

    Without `copying`, as if ops of other lanes were over as soon as they start.
    """
    reads, writes, ops = problem.reads, problem.writes, problem.ops
    count, end = len(ops), len(order)
    newest = [-1] * len(problem.storages)
    first = [-1] * count
    storage: list[int] = []
    born: list[int] = []
    last: list[int] = []
    pending = Pending() if copying and problem.lanes else None
    for step, o in enumerate(order):
        if not 0 <= o < count:
            raise ScheduleError(f"step {step}: there is no op {shown(o)}, only {count} ops")
        if first[o] < 0:
            first[o] = step
        elif ops[o].once:
            raise ScheduleError(f"step {step}: {problem.op_label(o)} may run only once and ran at step {first[o]}")
        for s in reads[o]:
            instance = newest[s]
            if instance < 0:
                raise ScheduleError(
                    f"step {step}: {problem.op_label(o)} reads {problem.storage_label(s)}, "
                    "which nothing has written yet"
                )
            last[instance] = step
        read = [newest[s] for s in reads[o]] if pending else ()
        for s in writes[o]:
            newest[s] = len(born)
            storage.append(s)
            born.append(step)
            last.append(step)
        if pending and ops[o].lane == COMPUTE:
            for instance in read:
                for touched in pending.wait(born[instance]):
                    last[touched] = max(last[touched], step)
        elif pending:
            pending.start(step, [*read, *(newest[s] for s in writes[o])])
    _verify_first_runs(problem, first)
    for instance in pending.never_waited_for() if pending else ():
        last[instance] = end
    for s in problem.kept:
        last[newest[s]] = end
    return Instances(storage, born, counted_until(problem, order, storage, last))


def counted_until(problem: Problem, order: Sequence[int], storage: list[int], last: list[int]) -> list[int]:
    """Per instance the last step at which its bytes count: one less where its last reader runs in place."""
    if not problem.in_place:
        return last
    taken = [problem.reuses[o] for o in order]
    taken.append(-1)
    return [step - (taken[step] == s) for s, step in zip(storage, last, strict=True)]


def _verify_first_runs(problem: Problem, first: list[int]) -> None:
    """Every op of the program runs, for the first time in program order."""
    before = -1
    for o in problem.program:
        step = first[o]
        if step < 0:
            raise ScheduleError(f"{problem.op_label(o)} never runs")
        if step < before:
            raise ScheduleError(
                f"step {step}: {problem.op_label(o)} runs for the first time before an op that stands before it "
                f"in the program, which first runs at step {before}"
            )
        before = step


def verify(problem: Problem, schedule: Schedule) -> None:
    """Raise a ScheduleError where `schedule` cannot run."""
    for step, o in enumerate(schedule.ops):
        if type(o) is not int:
            raise ScheduleError(f"step {step}: {shown(o)} is no op")
    instances(problem, schedule.ops)


def load_schedule(path: Path) -> Schedule:
    """The schedule in `path`; `verify` says whether it fits a problem."""
    content = read_object(path)
    try:
        expect_format(content, (FORMAT,))
        return Schedule(id_list(content, "ops", "the file"))
    except InputError as error:
        raise ScheduleError(f"{path} is no schedule: {error}") from None


def save_schedule(schedule: Schedule, path: Path) -> None:
    """Write `schedule`, all or nothing."""
    write_text(path, json.dumps({"format": FORMAT, "ops": list(schedule.ops)}, separators=(",", ":")) + "\n")
