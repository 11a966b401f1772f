"""The program before its peak as a chain of blocks, cut where few bytes pass from one to the next."""

from dataclasses import dataclass
from functools import cached_property

from lowtide.planning.optimal.lifetimes import Bytes, alive_bytes
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.policies.activations import phases
from lowtide.planning.schedule import counted_until


@dataclass(frozen=True)
class Blocks:
    """Block b is program positions cuts[b] to cuts[b + 1]; the last cut is the peak."""

    view: ProgramView
    cuts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.cuts) - 1

    @property
    def peak(self) -> int:
        """The position where what comes before turns from forward into backward."""
        return self.cuts[-1]

    def positions(self, b: int) -> range:
        """The positions of a block."""
        return range(self.cuts[b], self.cuts[b + 1])

    @cached_property
    def entry(self) -> tuple[frozenset[int], ...]:
        """Per block what it, or a block behind it, reads from the blocks before it."""
        until = _last_forward_read(self.view, self.peak)
        born = self.view.born
        return tuple(frozenset(s for s, k in until.items() if born[s] < cut <= k) for cut in self.cuts[:-1])

    def onward(self, b: int) -> frozenset[int]:
        """What block b passes on: still there when the program, done with the block behind it, comes back to it."""
        return self.entry[b + 1] if b + 1 < self.count else frozenset()

    @cached_property
    def needed(self) -> tuple[tuple[int, ...], ...]:
        """Per block its values that the program reads after the peak."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for b in range(self.count):
            for k in range(self.cuts[b], self.cuts[b + 1]):
                for s in self.view.problem.writes[self.view.problem.program[k]]:
                    if self.view.last[s] >= self.peak:
                        found[b].append(s)
        return tuple(map(tuple, found))

    @cached_property
    def returns(self) -> tuple[int, ...]:
        """Per block the position at which the program comes back to it after the peak, the last block first."""
        found = [0] * self.count
        least = self.peak
        for b in range(self.count - 1, -1, -1):
            reads = (k for s in self.needed[b] for k in self.view.needs[s] if self.peak <= k < self.view.count)
            found[b] = max(least, min(reads, default=least))
            least = found[b]
        return tuple(found)

    @cached_property
    def behind(self) -> Bytes:
        """Bytes of what the program itself writes after the peak, alive at each position, without workspaces."""
        view, problem = self.view, self.view.problem
        made = [s for s, k in view.born.items() if k >= self.peak]
        until = counted_until(problem, problem.program, made, [view.last[s] for s in made])
        return alive_bytes([view.born[s] for s in made], until, [problem.sizes[s] for s in made], view.count)


def find_narrow_blocks(view: ProgramView, most: int) -> Blocks | None:
    """A block between any two places where the program is narrower than around them; None where those are few."""
    peak = phases(view.problem).split
    cuts = _valleys(_width(view, peak), peak)
    if len(cuts) > most:
        cuts = cuts[:: -(-len(cuts) // most)]
    return Blocks(view, (0, *cuts, peak)) if len(cuts) >= SETTINGS.cuts_least else None


def _width(view: ProgramView, peak: int) -> Bytes:
    """Bytes that pass from before each position up to the peak to it or behind it, as far as read before the peak."""
    read = _last_forward_read(view, peak)
    first, sizes = [view.born[s] + 1 for s in read], [view.problem.sizes[s] for s in read]
    return alive_bytes(first, list(read.values()), sizes, peak + 1)


def _valleys(width: Bytes, peak: int) -> list[int]:
    """The last of the narrowest positions between any two rises of the width."""
    cuts: list[int] = []
    low, high, falling = 1, 1, True
    for k in range(1, peak):
        if falling:
            if width[k] <= width[low]:
                low = k
            elif width[k] > SETTINGS.valley * width[low]:
                cuts.append(low)
                high, falling = k, False
        elif width[k] >= width[high]:
            high = k
        elif SETTINGS.valley * width[k] < width[high]:
            low, falling = k, True
    return cuts


def _last_forward_read(view: ProgramView, peak: int) -> dict[int, int]:
    """Per value written before the peak the last position before it that reads it."""
    found: dict[int, int] = {}
    for s, k in view.born.items():
        if k < peak:
            reads = [q for q in view.needs.get(s, ()) if q < peak]
            if reads:
                found[s] = reads[-1]
    return found
