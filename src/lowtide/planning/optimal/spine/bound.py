"""The bound along the spine: links combined to groups from the first to the last, in ever finer cells.

The way back to how the least time came about gives a decision, which is no plan yet but near one.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.spine.cells import NOTHING, Cells, Costs, Rests, begun, combine, empty, sift
from lowtide.planning.optimal.spine.choices import AFTER, NEVER, Choices, Cost, Tangled, backward_bytes
from lowtide.planning.optimal.spine.links import Link, Spine
from lowtide.planning.optimal.work import charge_steps

STAYS, AGAIN, OPEN = range(3)
"""Groups whose last storage of the spine lies at the starts above, those where it runs again, and groups that go on.

It lies there too where it runs again only after its own start, since backward reads it before: its own link counts it,
and the link above must not count it once more.
"""


class LinkChoices:
    """All that a link can do: by whether it ends its group, and whether the storage below comes late."""

    def __init__(self, spine: Spine, link: Link) -> None:
        self.last = link.above is None
        self.choices: dict[tuple[bool, bool], Choices] = {}
        self.found: dict[tuple[bool, bool], dict[int, list[Cost]]] = {}
        for topmost in (True,) if self.last else (False, True):
            for late in (False,) if link.below is None else (False, True):
                choices = Choices(spine, link, topmost=topmost, late_below=late)
                self.choices[topmost, late], self.found[topmost, late] = choices, choices.find()
        rests = backward_bytes(spine, link, [other.start for other in spine.links])
        self.rests = Rests(np.array([b for b, _ in rests], np.int64), np.array([t for _, t in rests], np.float64))

    def costs(self, late: bool, into: int) -> list[Cost]:
        """The choices that end a group of the kind `into`, or let it go on."""
        found = self.found.get((into != OPEN, late), {})
        return [
            c
            for label, costs in found.items()
            if into == OPEN or (label in (NEVER, AFTER)) == (into == STAYS)
            for c in costs
        ]

    def rests_of(self, into: int) -> Rests:
        """What else lies at the start of a group that the link ends; nothing where it goes on."""
        return NOTHING if into == OPEN else self.rests


class Step(NamedTuple):
    """What one link does on the way that has the least time."""

    topmost: bool
    late: bool
    cost: Cost


class Chain:
    """One pass over all links, in so many cells; `least` is the least time of any way to group them."""

    def __init__(self, links: list[LinkChoices], room: int, cells: int) -> None:
        self.links, self.room, self.unit, self.cells = links, room, max(1, math.ceil((room + 1) / cells)), cells
        start = empty(cells)
        start.time[0, 0] = 0.0
        self.past: list[list[Cells]] = [[start, empty(cells), empty(cells)]]
        """Before each link, by kind of group."""
        for link in links:
            self.past.append(self._add(link, self.past[-1]))
        self.least = float(min(cells.time.min() for cells in self.past[-1][:OPEN]))

    def _sources(self, link: LinkChoices, past: list[Cells]) -> list[tuple[int, Cells, bool]]:
        """States that a link can follow: kind, cells, and whether the storage below comes late."""
        found = [(STAYS, begun(past[STAYS]), False), (AGAIN, begun(past[AGAIN]), True), (OPEN, past[OPEN], False)]
        return found[:OPEN] if link.last else found  # before the first start of all runs are free: no group reaches it

    def _add(self, link: LinkChoices, past: list[Cells]) -> list[Cells]:
        ended = [empty(self.cells) for _ in range(3)]
        for _, source, late in self._sources(link, past):
            states = int(np.isfinite(source.time).sum())
            for into, cells in enumerate(ended):
                costs, rests = _arrays(link.costs(late, into)), link.rests_of(into)
                combine(source, costs, rests, self.room, self.unit, into != OPEN, cells)
                charge_steps(SETTINGS.charges.combined * states * costs.time.size * rests.time.size)
        sift(ended[OPEN], np.empty(self.cells))
        charge_steps(SETTINGS.charges.sifted * self.cells**2)
        return ended

    def steps(self) -> list[Step]:
        """What each link does where the time is least; nothing where no way fits."""
        if not math.isfinite(self.least):
            return []
        last = self.past[-1]
        kind = min((STAYS, AGAIN), key=lambda kind: float(last[kind].time.min()))
        at = (kind, int(last[kind].time[:, 0].argmin()), 0)
        found: list[Step] = []
        for v in range(len(self.links) - 1, -1, -1):
            step, at = self._origin(v, *at)
            found.append(step)
        return found[::-1]

    def _origin(self, v: int, into: int, row: int, column: int) -> tuple[Step, tuple[int, int, int]]:
        """What a link did to come to a state behind it, and the state before: kind of group and cell."""
        link, least = self.links[v], self.past[v + 1][into].time[row, column]
        rests = list(zip(*map(np.ndarray.tolist, link.rests_of(into)), strict=True))
        for kind, source, late in self._sources(link, self.past[v]):
            for cost in link.costs(late, into):
                charge_steps(SETTINGS.charges.retraced * self.cells**2)
                above, at_start = source.above + cost.above, source.at_start + cost.at_start
                same = np.isfinite(source.time) & (above <= self.room) & (above // self.unit == row)
                if into == OPEN:
                    same &= at_start // self.unit == column
                for size, time in rests:
                    there = same & (at_start + size <= self.room) & (source.time + cost.time + time == least)
                    if there.any():
                        return Step(into != OPEN, late, cost), (kind, *np.argwhere(there)[0].tolist())
        raise AssertionError("a state that came from none")


def _arrays(costs: list[Cost]) -> Costs:
    return Costs(
        np.array([c.time for c in costs], np.float64),
        np.array([c.above for c in costs], np.int64),
        np.array([c.at_start for c in costs], np.int64),
    )


class SpineBound:
    """The spine before `top` and what its links can do, worked out once for the bound and for what it stores."""

    def __init__(self, view: ProgramView, budget: int, top: int, *, left: Callable[[], float]) -> None:
        self.spine = Spine(view, top, budget - view.problem.resident_bytes)
        self.left = left

    @cached_property
    def links(self) -> list[LinkChoices]:
        """What each link can do; nothing where there is no spine, or its ops are too tangled."""
        fewest, most = SETTINGS.links
        longest = max(len(link.ops) for link in self.spine.links)
        if not fewest <= len(self.spine.links) <= most or longest > SETTINGS.link_ops:
            return []
        links: list[LinkChoices] = []
        enough = (1 - SETTINGS.spine_share) * self.left()
        for link in self.spine.links:
            try:
                links.append(LinkChoices(self.spine, link))
            except Tangled:
                return []
            if self.left() < enough:
                return []
        return links

    def at(self, cells: int, percent: int = 100) -> Chain | None:
        """The links combined in so many cells, in a part of the room; None where there are no links."""
        return Chain(self.links, self.spine.room * percent // 100, cells) if self.links else None

    def decision(self, chain: Chain) -> Decision | None:
        """What the bound stores at the start of each group; None where nothing fits."""
        steps = chain.steps()
        if not steps:
            return None
        spine, view, stored = self.spine, self.spine.view, dict[int, frozenset[int]]()
        above, group, group_above = set[int](), set[int](), set[int]()
        for link, choices, step in zip(spine.links, self.links, steps, strict=True):
            choice = choices.choices[step.topmost, step.late]
            group |= choice.named(step.cost.lie_at_start)
            group_above |= choice.named(step.cost.lie_above)
            if step.topmost:
                waiting = {
                    s
                    for s, k in view.born.items()
                    if (k >= spine.top or not spine.bytes(s)) and k < link.start <= view.last[s]
                }
                stored[link.start] = frozenset(above | group | waiting)
                above |= group_above
                group, group_above = set(), set()
        instants = tuple(sorted(stored))
        return Decision(instants, tuple(stored[j] for j in instants), tuple(frozenset() for _ in instants))
