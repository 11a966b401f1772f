"""Forward cut into links, where one storage alone passes on that backward reads too."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lowtide.planning.optimal.program_view import ProgramView, bytes_since
from lowtide.planning.optimal.settings import SETTINGS


@dataclass(frozen=True)
class Link:
    """Positions of forward between two storages of the spine."""

    ops: range
    below: int | None
    """The storage that it begins from; None for the first link."""
    above: int | None
    """The storage that it ends with; None for the last."""
    start: int
    """Position of backward at which bytes are counted where this link is the topmost of its group."""
    start_above: int
    """The same of the link above: the latest start of a group above this link's own."""


@dataclass(frozen=True)
class Spine:
    """The program before `top`, the first position at which bytes are counted, as a chain of links."""

    view: ProgramView
    top: int
    room: int
    """Bytes of the budget beside the residents."""

    def bytes(self, s: int) -> int:
        """What a storage counts."""
        size = self.view.problem.sizes[s]
        return size if size > SETTINGS.negligible * self.room else 0

    @cached_property
    def made(self) -> list[int]:
        """Storages of forward."""
        return [s for s, k in self.view.born.items() if k < self.top]

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """Positions of forward that read a storage of forward."""
        return {s: [k for k in self.view.needs.get(s, ()) if k < self.top] for s in self.made}

    @cached_property
    def later(self) -> dict[int, list[int]]:
        """Positions from `top` on that read a storage of forward; the end of the program where it is kept."""
        return {s: [k for k in self.view.needs.get(s, ()) if k >= self.top] for s in self.made}

    @cached_property
    def links(self) -> list[Link]:
        """From the first op to `top`."""
        cuts = self._cuts()
        edges = [0, *(k for k, _ in cuts), self.top]
        passed: list[int | None] = [None, *(s for _, s in cuts), None]
        first = [self.top if s is None else self.later[s][0] for s in passed[1:]]
        ends = [self.view.count, *first[:-1]]
        needs = bytes_since(self.view, self.top)
        starts = [low + int(np.argmax(needs[low:high])) for low, high in zip(first, ends, strict=True)]
        starts.append(self.top - 1)
        return [
            Link(range(edges[v], edges[v + 1]), passed[v], passed[v + 1], starts[v], starts[v + 1])
            for v in range(len(first))
        ]

    def _cuts(self) -> list[tuple[int, int]]:
        """(position, storage): what is made before and read in forward from there on is this storage alone.

        Backward needs it too, and later ones of the spine sooner.
        """
        passing = np.zeros(self.top + 1, dtype=np.int64)
        which = np.zeros(self.top + 1, dtype=np.int64)
        for s, ks in self.readers.items():
            if ks and self.bytes(s):
                passing[self.view.born[s] + 1 : ks[-1] + 1] += 1
                which[self.view.born[s] + 1 : ks[-1] + 1] += s
        found: list[tuple[int, int]] = []
        for k in np.flatnonzero(passing[: self.top] == 1):
            s = int(which[k])
            needs = self.later[s]
            if (found and found[-1][1] == s) or not needs or not self.top < needs[0] < self.view.count:
                continue
            while found and self.later[found[-1][1]][0] <= needs[0]:
                found.pop()
            found.append((int(k), s))
        return found
