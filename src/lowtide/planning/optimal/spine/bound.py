"""The bound: links combined to groups, group after group, in ever finer cells."""

import math
from collections.abc import Callable

import numpy as np

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.spine.choices import NEVER, Choices, Cost, Tangled, backward_bytes
from lowtide.planning.optimal.spine.links import Link, Spine
from lowtide.planning.optimal.spine.states import Cells, Costs, Rests, begun, close, empty, extend, sift
from lowtide.planning.optimal.work import STEP, charge

CELLS = (120, 240, 480)
"""Cells for the bytes of the room, ever finer."""
NEAR = 0.9
"""Share of the bound by other means that coarse cells must reach for finer ones to be tried."""
FEWEST, MOST = 2, 200
"""Links without which there is nothing to group, and beyond which too much is lost from link to link."""
CHOICES = 0.3
"""Share of the work that the choices of all links may take."""
COMBINED, SIFTED = 5.5e-3 * STEP, 2e-2 * STEP
"""Work of one state with one choice of a link, and of giving up one that another beats."""

Closed = tuple[Cells, Cells]
"""Groups whose last storage of the spine never runs again, and those where it does."""


def spine_bound(facts: Facts, budget: int, top: int, *, known: float, left: Callable[[], float]) -> float:
    """A bound on extra time, at least `known`: just that where forward has no spine, or its ops are too tangled."""
    room = budget - facts.problem.resident_bytes
    spine = Spine(facts, top, room)
    if not FEWEST <= len(spine.links) <= MOST:
        return known
    links: list[_Link] = []
    enough = (1 - CHOICES) * left()
    for link in spine.links:
        try:
            links.append(_Link(spine, link))
        except Tangled:
            return known
        if left() < enough:
            return known
    bound = known
    for cells in CELLS:
        before = left()
        value = _Chain(links, room, cells).least()
        bound = max(bound, value)
        if value < NEAR * known or 3 * (before - left()) > left():
            break
    return bound


class _Link:
    """All that a link can do, as arrays: by whether it ends its group and whether the storage below comes late."""

    def __init__(self, spine: Spine, link: Link) -> None:
        self.last = link.above is None
        starts = [other.start for other in spine.links]
        self.choices: dict[tuple[bool, bool], dict[int, list[Cost]]] = {}
        for topmost in (True,) if self.last else (False, True):
            for late in (False,) if link.below is None else (False, True):
                self.choices[topmost, late] = Choices(spine, link, topmost=topmost, late_below=late).find()
        rests = backward_bytes(spine, link, starts)
        self.rests = Rests(np.array([b for b, _ in rests]), np.array([t for _, t in rests]))

    def costs(self, topmost: bool, late: bool, *, stays: bool | None = None) -> Costs:
        """The choices whose storage above stays from forward on, those where it runs again, or all."""
        found = self.choices.get((topmost, late), {})
        kept = [c for label, costs in found.items() if stays is None or (label == NEVER) == stays for c in costs]
        times, above, at_start = zip(*kept, strict=True) if kept else ((), (), ())
        return Costs(np.array(times, np.float64), np.array(above, np.int64), np.array(at_start, np.int64))


class _Chain:
    """One pass over all links."""

    def __init__(self, links: list[_Link], room: int, cells: int) -> None:
        self.links, self.room, self.unit, self.cells = links, room, max(1, math.ceil((room + 1) / cells)), cells

    def least(self) -> float:
        """The least time of any way to group the links; infinite where none fits."""
        start = empty(self.cells)
        start.time[0, 0] = 0.0
        closed: Closed = start, empty(self.cells)
        opened = empty(self.cells)
        for link in self.links:
            closed, opened = self._add(link, closed, opened)
        return float(min(cells.time.min() for cells in closed))

    def _add(self, link: _Link, closed: Closed, opened: Cells) -> tuple[Closed, Cells]:
        ended: Closed = empty(self.cells), empty(self.cells)
        going = empty(self.cells)
        sources = [(begun(closed[0]), False), (begun(closed[1]), True)]
        if (
            not link.last
        ):  # at the first start of all, what runs again before it is not counted: no group reaches up to it
            sources.append((opened, False))
        for source, late in sources:
            states = int(np.isfinite(source.time).sum())
            for into, stays in zip(ended, (True, False), strict=True):
                costs = link.costs(True, late, stays=stays)
                charge(COMBINED * states * costs.time.size * link.rests.time.size)
                close(source, costs, link.rests, self.room, self.unit, into)
            costs = link.costs(False, late)
            charge(COMBINED * states * costs.time.size)
            extend(source, costs, self.room, self.unit, going)
        sift(going, np.empty(self.cells))
        charge(SIFTED * self.cells**2)
        return ended, going
