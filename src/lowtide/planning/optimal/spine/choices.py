"""What a link can do, seen from the start of the group that it belongs to.

Every op of the link has a label by when it runs again: never, only before the start, only after it, or both, which is
twice at least. From the labels follow time, the bytes that lie from the starts of all groups above on (`above`), and
those that lie at the group's own start (`at_start`). Choices that another beats in all three are left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import add
from typing import NamedTuple

from lowtide.planning.optimal.packing import Packing
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.spine.links import Link, Spine
from lowtide.planning.optimal.work import charge_steps

NEVER, BEFORE, AFTER, BOTH = range(4)
RUNS = (0, 1, 1, 2)

Labels = tuple[int, ...]


class Cost(NamedTuple):
    """One choice: its time, its bytes above and at the start, and the storages that these are, as bits."""

    time: float
    above: int
    at_start: int
    lie_above: int
    lie_at_start: int


class Tangled(Exception):
    """The ops of a link have too many combinations."""


@dataclass(frozen=True)
class _Kept:
    """A storage of the link, or the one below it: what decides whether it lies at the starts."""

    bytes: int
    bit: int
    producer: int | None
    readers: tuple[int, ...]
    last: int
    """Last read by the program from the top on; -1 where there is none."""
    read_between: bool
    """Does the program read it after the starts above and no later than its own group's?"""
    forced: bool
    """Does the op at the group's own start read it?"""
    packing: Packing | None = None

    def lies(self, labels: Sequence[int], at: dict[int, int], start: int, above: int) -> tuple[bool, bool]:
        """Does it lie above, and at the start?"""
        readers = [labels[at[k]] for k in self.readers]
        if self.producer is None:  # the storage below, made again only after the start
            return any(label in (BEFORE, BOTH) for label in readers), False
        made = labels[at[self.producer]]
        at_start = made in (NEVER, BEFORE) and (self.last > start or any(label in (AFTER, BOTH) for label in readers))
        if made == NEVER:
            waits = self.last > above or any(label != NEVER for label in readers)
        else:
            waits = made == AFTER and (self.read_between or any(label in (BEFORE, BOTH) for label in readers))
        return waits, at_start or self.forced


class Choices:
    """The choices of one link as the topmost of its group or below another."""

    def __init__(self, spine: Spine, link: Link, *, topmost: bool, late_below: bool) -> None:
        self.spine, self.link, self.topmost, self.late_below = spine, link, topmost, late_below
        self.start = link.start if topmost else link.start_above
        self.storages = self._storages()
        self.kept = [self._kept(s, 1 << i) for i, s in enumerate(self.storages)]

    def _storages(self) -> list[int]:
        problem = self.spine.view.problem
        made = [s for k in self.link.ops for s in problem.writes[problem.program[k]] if self.spine.bytes(s)]
        return [*made, self.link.below] if self.late_below and self.link.below is not None else made

    def _kept(self, s: int, bit: int) -> _Kept:
        spine, link, problem = self.spine, self.link, self.spine.view.problem
        later, here = spine.later[s], problem.program[link.start]
        between = self.topmost and any(link.start_above < k <= link.start for k in later)
        forced = self.topmost and s in problem.reads[here] and problem.reuses[here] != s
        producer = None if s == link.below else spine.view.born[s]
        readers = tuple(k for k in spine.readers[s] if k in link.ops)
        last, packing = later[-1] if later else -1, spine.view.packing.get(s)
        if packing is not None and producer is None:
            packing = replace(packing, time=0.0)  # the link that makes it pays
        return _Kept(spine.bytes(s), bit, producer, readers, last, between, forced, packing)

    def find(self) -> dict[int, list[Cost]]:
        """The choices worth having, by the label of the op that makes the storage above."""
        problem, link = self.spine.view.problem, self.link
        ends: dict[int, list[_Kept]] = {}
        until: dict[int, int] = {}
        for kept in self.kept:
            touched = [*kept.readers, *([] if kept.producer is None else [kept.producer])]
            for k in touched:
                until[k] = max(until.get(k, -1), *touched)
            if touched:
                ends.setdefault(max(touched), []).append(kept)
        tip = None if link.above is None else self.spine.view.born[link.above]
        if tip is not None:
            until[tip] = link.ops.stop
        opened: list[int] = []
        found: dict[Labels, list[Cost]] = {(): [Cost(0.0, 0, 0, 0, 0)]}
        for k in sorted(until):
            opened.append(k)
            left = [i for i, q in enumerate(opened) if until[q] > k]
            time = problem.times[problem.program[k]]
            found = self._with(found, opened, left, self._labels(k, tip), time, ends.get(k, []))
            opened = [opened[i] for i in left]
        by_tip: dict[int, list[Cost]] = {}
        for labels, costs in found.items():
            by_tip.setdefault(labels[0] if labels else NEVER, []).extend(costs)
        return {label: undominated(costs) for label, costs in by_tip.items()}

    def _labels(self, k: int, tip: int | None) -> tuple[int, ...]:
        problem = self.spine.view.problem
        if problem.ops[problem.program[k]].once:
            return (NEVER,)
        if self.link.above is None:  # what runs again before the first start of all is not counted
            return NEVER, AFTER
        if k == tip and not self.topmost:
            return NEVER, BEFORE, BOTH
        return NEVER, BEFORE, AFTER, BOTH

    def _with(
        self,
        found: dict[Labels, list[Cost]],
        opened: Sequence[int],
        left: Sequence[int],
        able: Sequence[int],
        time: float,
        ends: Iterable[_Kept],
    ) -> dict[Labels, list[Cost]]:
        """Every choice so far with every label of the last op; storages that nothing else touches are counted."""
        at = {k: i for i, k in enumerate(opened)}
        looked = len(able) * sum(map(len, found.values()))
        charge_steps(SETTINGS.charges.label * looked)
        if looked > SETTINGS.link_choices:
            raise Tangled
        new: dict[Labels, list[Cost]] = {}
        room = self.spine.room
        for before, costs in found.items():
            for label in able:
                labels = (*before, label)
                into = new.setdefault(tuple(labels[i] for i in left), [])
                for cost in self._counted(labels, at, RUNS[label] * time, ends):
                    for other in costs:
                        both = Cost(*map(add, other, cost))
                        if max(both.above, both.at_start) <= room:
                            into.append(both)
        return {labels: undominated(costs) for labels, costs in new.items()}

    def _counted(self, labels: Labels, at: dict[int, int], time: float, ends: Iterable[_Kept]) -> list[Cost]:
        """What the storages cost that have now been touched by all their ops; packed ones less, for their time."""
        found = [Cost(time, 0, 0, 0, 0)]
        for kept in ends:
            waits, lies = kept.lies(labels, at, self.start, self.link.start_above)
            waits = waits and self.link.above is not None  # there is no start above the last link's
            bits = (waits * kept.bit, lies * kept.bit)
            ways = [Cost(0.0, waits * kept.bytes, lies * kept.bytes, *bits)]
            if kept.packing is not None and (waits or lies):
                size = kept.packing.bytes
                ways.append(Cost(kept.packing.time, waits * size, lies * size, *bits))
            found = [Cost(*map(add, cost, way)) for cost in found for way in ways]
        return found

    def named(self, bits: int) -> set[int]:
        """Storages from their bits."""
        return {s for i, s in enumerate(self.storages) if bits >> i & 1}


def undominated(costs: Iterable[Cost]) -> list[Cost]:
    """Those that no other beats in time and both counts of bytes."""
    kept: list[Cost] = []
    for cost in sorted(set(costs)):
        if not any(other.above <= cost.above and other.at_start <= cost.at_start for other in kept):
            kept.append(cost)
    return kept


def backward_bytes(spine: Spine, link: Link, starts: Sequence[int]) -> list[tuple[int, float]]:
    """What else lies at the link's start, in bytes, and the time it costs to have no more than that.

    The op's own outputs and workspace, and what the program has made since the top. Values that the op does not read
    may be dropped where their own ops run again, and where what those read lies there instead or is made again too. A
    value that lies at several starts is left out, since dropping it once would do for all.
    """
    view, problem, j = spine.view, spine.view.problem, link.start
    o = problem.program[j]
    sizes = list(problem.sizes)
    for s, packing in view.packing.items():
        sizes[s] = min(sizes[s], packing.bytes)
    least = problem.workspaces[o] + sum(problem.sizes[s] for s in problem.writes[o])
    there, able = set[int](), list[int]()
    for s, k in view.born.items():
        last = view.last[s]
        if not spine.top <= k < j <= last or problem.reuses[o] == s:
            continue
        if s in problem.reads[o] or problem.ops[problem.program[k]].once:
            least += problem.sizes[s] if s in problem.reads[o] else sizes[s]
            there.add(s)
        elif not any(x != j and k < x <= last for x in starts):
            able.append(s)
    able = sorted(able, key=lambda s: (-sizes[s], s))[: SETTINGS.spine_dropped]
    found: list[tuple[int, float]] = []
    for count in range(len(able) + 1):
        for gone in combinations(able, count):
            kept = there.union(able) - set(gone)
            makers = {problem.program[view.born[s]] for s in gone}
            size = least + sum(sizes[s] for s in able if s not in gone)
            time = sum(problem.times[q] for q in makers)
            inputs = {r for q in makers for r in problem.reads[q] if view.born[r] >= spine.top} - kept - set(gone)
            found.append((size + sum(sizes[r] for r in inputs), time))
            if inputs:
                found.append((size, time + min(problem.times[problem.program[view.born[r]]] for r in inputs)))
    return [x for x in found if not any(y != x and y[0] <= x[0] and y[1] <= x[1] for y in found)]
