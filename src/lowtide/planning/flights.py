"""Collectives beside compute: an order that does each of them at once, taken apart into starts and waits.

A reduction starts where it stood, as its last gradient is complete; the wait for it, and the updates that read it, move
back. A gather starts ahead of its use. Both as far as that brings time and the bytes allow; the simulator judges.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from lowtide.planning.problem import Op, Problem, Storage
from lowtide.planning.schedule import instances
from lowtide.planning.simulate import Timeline, simulate
from lowtide.planning.swap_places import EARLY, started_early

LINK = "link"
"""The lane: one, since a group does its collectives one behind the other."""
TRIES = 4
"""How often starts move on by the clock of what came out before, and how often a budget is lowered by what it is
passed by."""


class Part(StrEnum):
    """What an op of the problem with flights is."""

    WHOLE = "whole"
    """An op as before; a collective that is over at once."""
    START = "start"
    FLIGHT = "flight"
    """On the lane."""
    DRAG = "drag"
    """What the flight takes from compute."""
    OVER = "over"
    """Compute waits until here; what the group's threads held is free."""
    WAIT = "wait"
    """What is done then."""


@dataclass(frozen=True, slots=True)
class Flight:
    """How the time of a collective divides."""

    start: float
    wait: float
    """Of compute: what is done before and behind the flight. The rest of the op's time is the flight."""
    drag: float
    """What it takes from compute while it is under way."""


Step = tuple[Part, tuple[int, ...]]
"""A part of an op of the old problem; updates that come to stand together are one."""


@dataclass(frozen=True)
class Overlapped:
    """A problem with flights, and what its ops are in the problem that it was made from."""

    problem: Problem
    order: tuple[int, ...]
    steps: tuple[Step, ...]
    """Per op of the problem."""
    timeline: Timeline


def overlapped(
    problem: Problem, order: Sequence[int], flights: Mapping[int, Flight], updates: Iterable[int], budget: int
) -> Overlapped | None:
    """`order` with the collectives `flights` beside compute where that is faster and fits; None where it is not.

    `updates` may run later than they stand, as nothing behind them reads what they write.
    """
    before = simulate(problem, order)
    given = _Given(problem, flights, frozenset(updates))
    best: Overlapped | None = None
    for reductions, gathers in ((True, True), (True, False), (False, True)):
        found = _within(given, order, budget, reductions=reductions, gathers=gathers)
        if found is not None and found.timeline.time < min(before.time, best.timeline.time if best else before.time):
            best = found
    return best


@dataclass(frozen=True)
class _Given:
    problem: Problem
    flights: Mapping[int, Flight]
    updates: frozenset[int]

    def is_gather(self, o: int) -> bool:
        """Does it read residents alone?"""
        return not self.problem.reads[o]

    def in_flight(self, o: int) -> float:
        flight = self.flights[o]
        return max(0.0, self.problem.times[o] - flight.start - flight.wait)


def _within(given: _Given, order: Sequence[int], budget: int, *, reductions: bool, gathers: bool) -> Overlapped | None:
    """One way to do it inside of the budget; None where there is none."""
    room = budget
    for _ in range(TRIES):
        steps = _waits_late(given, order, room if reductions else 0)
        found = _built(given, steps)
        for _ in range(TRIES if gathers else 0):
            found, moved = _gathered_early(given, found, room)
            if not moved:
                break
        found = _built(given, _landed_at_once(given, found))
        if found.timeline.peak <= budget:
            return found
        room -= found.timeline.peak - budget
    return None


def _waits_late(given: _Given, order: Sequence[int], room: int) -> list[Step]:
    """The steps of `order`; waits for reductions, and the updates behind them, stand where these are over by the clock,
    or where the bytes are needed."""
    problem = given.problem
    live, lived = simulate(problem, order).live, instances(problem, order)
    dies = dict(zip(lived.storage, lived.last, strict=True))
    made_by = {s: o for o in given.flights for s in problem.writes[o]}
    found: list[Step] = []
    waiting: list[tuple[int, float]] = []
    """Steps that are put off, and when they are ready."""
    held: dict[int, int] = {}
    """What each of them holds: the workspace of a collective, or bytes that an update was to free."""
    now = free = 0.0

    def run(o: int) -> None:
        nonlocal now
        now += problem.times[o]
        together: tuple[int, ...] = ()
        if o in given.updates and found and found[-1][0] is Part.WHOLE and found[-1][1][-1] in given.updates:
            together = found.pop()[1]
        found.append((Part.WHOLE, (*together, o)))

    def let_go() -> None:
        nonlocal now
        o, ready = waiting.pop(0)
        held.pop(o, None)
        if o in given.flights:
            found.append((Part.WAIT, (o,)))
            now = max(now, ready) + given.flights[o].wait + given.flights[o].drag
        else:
            run(o)
        while waiting and waiting[0][0] not in given.flights:
            let_go()

    for step, o in enumerate(order):
        while waiting and (waiting[0][1] <= now or live[step] + sum(held.values()) > room):
            let_go()
        needed = {made_by[s] for s in problem.reads[o] if s in made_by} if o not in given.updates else set()
        while any(w in needed for w, _ in waiting):
            let_go()
        if o in given.flights:
            found.append((Part.START, (o,)))
            now += given.flights[o].start
            free = max(free, now) + given.in_flight(o)
            if given.is_gather(o):
                found.append((Part.WAIT, (o,)))
                now = free + given.flights[o].wait
            else:
                waiting.append((o, now + EARLY * (free - now)))
                held[o] = problem.workspaces[o]
        elif o in given.updates and waiting:
            waiting.append((o, 0.0))
            held[o] = sum(problem.sizes[s] for s in problem.reads[o] if dies[s] <= step)
        else:
            run(o)
    while waiting:
        let_go()
    return found


def _built(given: _Given, steps: Sequence[Step]) -> Overlapped:
    """The problem whose program is the first runs of `steps`, with flights where collectives start.

    What is under way holds all that the collective takes when it is done at once: gloo gathers into memory of its own.
    """
    problem = given.problem
    storages = list(problem.storages)
    taken: dict[int, tuple[int, ...]] = {}
    for o in dict.fromkeys(ops[0] for part, ops in steps if part is Part.START):
        name = problem.ops[o].name
        extra = [
            Storage(0, name=f"{name} under way", off_device=True),
            Storage(problem.workspaces[o], name=f"buffers of {name}"),
            Storage(sum(problem.sizes[s] for s in problem.writes[o]), name=f"{name} before it is there"),
        ]
        taken[o] = tuple(range(len(storages), len(storages) + len(extra)))
        storages += extra
    ops: list[Op] = []
    made: list[Step] = []
    number: dict[Step, int] = {}
    order: list[int] = []

    def run(step: Step, make: Op) -> None:
        if step not in number:
            number[step] = len(ops)
            ops.append(make)
            made.append(step)
        order.append(number[step])

    for part, (o, *others) in steps:
        op = problem.ops[o]
        if part is Part.START:
            token, *held = taken[o]
            flying = Op(f"{op.name} under way", given.in_flight(o), tuple(held), (token,), once=op.once, lane=LINK)
            if given.is_gather(o):
                flying = replace(flying, name=f"start_{op.name}", reads=op.reads, writes=(token, *held))
            else:
                start = Op(f"start_{op.name}", given.flights[o].start, op.reads, tuple(held), once=op.once)
                run((Part.START, (o,)), start)
            run((Part.FLIGHT, (o,)), flying)
        elif part is Part.WAIT:
            token, buffers, before = taken[o]
            flight = given.flights[o]
            run((Part.DRAG, (o,)), Op(f"beside {op.name}", flight.drag, (), (), optional=True))
            run((Part.OVER, (o,)), Op(f"{op.name} is over", 0.0, (token, before), ()))
            time = flight.wait + (flight.start if given.is_gather(o) else 0.0)
            run((Part.WAIT, (o,)), replace(op, time=time, reads=(token, buffers), workspace=0))
        elif part is Part.WHOLE:
            run((part, (o, *others)), _together([op, *(problem.ops[other] for other in others)]))
    for o, op in enumerate(problem.ops):
        if op.optional and (Part.WHOLE, (o,)) not in number:
            ops.append(op)
            made.append((Part.WHOLE, (o,)))
    whole = Problem(problem.name, tuple(storages), tuple(ops))
    whole.verify()
    return Overlapped(whole, tuple(order), tuple(made), simulate(whole, order))


def _together(ops: Sequence[Op]) -> Op:
    """Updates that came to stand together, as one."""
    first, *others = ops
    if not others:
        return first
    return replace(
        first,
        name=f"{first.name}_and_{len(others)}_others",
        time=sum(op.time for op in ops),
        reads=tuple(sorted({s for op in ops for s in op.reads})),
        workspace=sum(op.workspace for op in ops),
    )


def _gathered_early(given: _Given, found: Overlapped, room: int) -> tuple[Overlapped, bool]:
    """Starts of gathers moved ahead until they are over in good time, or the bytes run out; and whether any has."""
    starts = {}
    for o, (part, (old, *_)) in enumerate(found.steps):
        if part is Part.FLIGHT and given.is_gather(old):
            starts[o] = sum(found.problem.sizes[s] for s in found.problem.writes[o])
    order = started_early(found.problem, found.order, starts, room)
    if order == found.order:
        return found, False
    return _built(given, _steps_of(given, found, order)), True


def _steps_of(given: _Given, found: Overlapped, order: Sequence[int]) -> list[Step]:
    """`order` in steps of which a problem is built."""
    steps: list[Step] = []
    for o in order:
        part, ops = found.steps[o]
        if part is Part.FLIGHT and given.is_gather(ops[0]):
            steps.append((Part.START, ops))
        elif part not in (Part.FLIGHT, Part.DRAG, Part.OVER):
            steps.append((part, ops))
    return steps


def _landed_at_once(given: _Given, found: Overlapped) -> list[Step]:
    """The steps of `found`, where a collective that is waited for at once in all of its runs is whole again."""
    steps = _steps_of(given, found, found.order)
    apart = {
        ops
        for place, (part, ops) in enumerate(steps)
        if part is Part.START and (place + 1 == len(steps) or steps[place + 1] != (Part.WAIT, ops))
    }
    return [
        (part if part is not Part.WAIT or ops in apart else Part.WHOLE, ops)
        for part, ops in steps
        if part is not Part.START or ops in apart
    ]
