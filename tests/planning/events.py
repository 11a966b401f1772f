"""Lanes event by event: compute and copies as workers with queues, and bytes that are needed at every moment.

Shares nothing with the simulator: what is needed at a moment follows from what is still to be read and from which
copies are still under way by the clock, not from the order's waits.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lowtide.planning.problem import COMPUTE, Problem


@dataclass
class Instance:
    """One making of a storage."""

    storage: int
    step: int
    readers: list[int] = field(default_factory=list)


@dataclass
class Events:
    """When each step began and ended, and the instances with their readers."""

    began: dict[int, float]
    ended: dict[int, float]
    instances: list[Instance]
    inputs: list[list[Instance]]

    @property
    def time(self) -> float:
        """When everything is done."""
        return max(self.ended.values())


def run(problem: Problem, order: Sequence[int], took: Callable[[int], float]) -> Events:
    """Let the workers work; `took` says how long a step takes."""
    instances, inputs = _instances(problem, order)
    lane_of = [problem.ops[o].lane for o in order]
    began: dict[int, float] = {}
    ended: dict[int, float] = {}
    queues: dict[str, list[int]] = {lane: [] for lane in problem.lanes}
    busy: set[str] = set()
    events: list[tuple[float, int, int]] = [(0.0, -1, -1)]
    nth, at, running = 0, 0, False
    while events:
        now, _, finished = heapq.heappop(events)
        if finished >= 0:
            ended[finished] = now
            if lane_of[finished] == COMPUTE:
                running = False
            else:
                busy.discard(lane_of[finished])
        while not running and at < len(order):
            if lane_of[at] != COMPUTE:
                queues[lane_of[at]].append(at)
            elif all(made.step in ended for made in inputs[at]):
                began[at], running, nth = now, True, nth + 1
                heapq.heappush(events, (now + took(at), nth, at))
            else:
                break
            at += 1
        for lane, queue in queues.items():
            if lane not in busy and queue and all(made.step in ended for made in inputs[queue[0]]):
                first = queue.pop(0)
                busy.add(lane)
                began[first], nth = now, nth + 1
                heapq.heappush(events, (now + took(first), nth, first))
    return Events(began, ended, instances, inputs)


def needed_bytes(problem: Problem, order: Sequence[int], events: Events, step: int) -> int:
    """Bytes that nobody may take away while compute works on `step`: at least what the order must reckon with."""
    moment = events.began[step]
    total = sum(storage.bytes for storage in problem.storages if storage.resident) + problem.ops[order[step]].workspace
    kept = {s: made for made in events.instances for s in (made.storage,) if problem.storages[s].keep}
    for made in events.instances:
        storage = problem.storages[made.storage]
        if storage.off_device or made.step > step:
            continue
        copies = [made.step, *made.readers]
        under_way = any(
            k <= step and problem.ops[order[k]].lane != COMPUTE and events.ended[k] > moment for k in copies
        )
        used = made.step == step or any(k >= step for k in made.readers) or kept.get(made.storage) is made
        last = (
            max(copies) == step
            and problem.ops[order[step]].reuses == made.storage
            and kept.get(made.storage) is not made
        )
        if under_way or (used and not (last and step in made.readers)):
            total += storage.bytes
    return total


def known_bytes(problem: Problem, order: Sequence[int], step: int) -> int:
    """Bytes at `step` by the rule as docs/planner.md writes it, looking through the whole order for every instance."""
    instances, inputs = _instances(problem, order)
    lanes = [problem.ops[o].lane for o in order]

    def waited_for(copy: int) -> int:
        """The compute step that waits for the copy started at `copy`."""
        for later in range(copy + 1, len(order)):
            if lanes[later] == COMPUTE and any(made.step == copy for made in inputs[later]):
                return later
        return len(order)

    kept = {made.storage: made for made in instances if problem.storages[made.storage].keep}
    total = sum(storage.bytes for storage in problem.storages if storage.resident) + problem.ops[order[step]].workspace
    for made in instances:
        if problem.storages[made.storage].off_device or made.step > step:
            continue
        touching = [made.step, *made.readers]
        last = len(order) if kept.get(made.storage) is made else max(touching)
        last = max([last, *(waited_for(k) for k in touching if lanes[k] != COMPUTE)])
        taken = last < len(order) and problem.ops[order[last]].reuses == made.storage and last in made.readers
        if step <= last - taken:
            total += problem.storages[made.storage].bytes
    return total


def _instances(problem: Problem, order: Sequence[int]) -> tuple[list[Instance], list[list[Instance]]]:
    newest: dict[int, Instance] = {}
    instances: list[Instance] = []
    inputs: list[list[Instance]] = []
    for step, o in enumerate(order):
        read = [newest[s] for s in dict.fromkeys(problem.ops[o].reads) if not problem.storages[s].resident]
        for made in read:
            made.readers.append(step)
        inputs.append(read)
        for s in problem.ops[o].writes:
            newest[s] = Instance(s, step)
            instances.append(newest[s])
    return instances, inputs
