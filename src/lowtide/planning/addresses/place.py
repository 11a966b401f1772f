"""The addresses of blocks in as few bytes as can be: greedy first, then the order of greed is mended."""

from dataclasses import dataclass

import numpy as np

from lowtide.errors import LowtideError
from lowtide.planning.addresses.blocks import ALIGNMENT, Blocks, Ints
from lowtide.planning.apart import LARGE, apart
from lowtide.planning.policies import Progress

ENOUGH = 1.002
"""Times the least possible: nothing is won below."""
SLOPES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.8)
"""Angles between size alone (0) and length of life alone (a right angle), both as logarithms: blocks are put in the
order of that mixture, the greatest first."""
SMALL = (1 / 500, 1 / 2_000, 1 / 10_000)
"""Of the bytes in use at once: a smaller block does not take part in the mending, and is put into a gap afterwards.
The next of these counts where all others lie well and only the small ones do not."""
CLIMBS = 3
"""How many of the orders are mended, the best ones."""
PAIRS = 16_000_000
"""Of blocks that live at the same time: where there are more, more blocks count as small."""
WORK = 60_000_000
"""Looks at a block in all of the mending: about a second."""
LOOKS = 8
"""Of putting a block, beside those at the blocks that live at the same time."""


class PlacementError(LowtideError, RuntimeError):
    """Two blocks would share bytes: a mistake of lowtide, never of the blocks."""


@dataclass(frozen=True)
class Placement:
    """Where every block lies, in one piece of memory of `extent` bytes."""

    blocks: Blocks
    offsets: Ints
    extent: int
    load: int
    """Bytes in use at once: no placement takes less."""

    @property
    def waste(self) -> float:
        """What it takes beyond that, as a share of it."""
        return self.extent / self.load - 1 if self.load else 0.0


def place(blocks: Blocks, *, seed: int = 0) -> Placement:
    """Addresses for `blocks`, multiples of the alignment; the same for the same blocks and seed."""
    if not len(blocks):
        return Placement(blocks, np.zeros(0, dtype=np.int64), 0, 0)
    enough = int(ENOUGH * blocks.load)
    orders = [_by_mixture(blocks, slope) for slope in SLOPES]
    found: list[tuple[int, int, Ints]] = []
    for number, order in enumerate(orders):
        offsets, taken = _fitted(blocks, order, 0, np.zeros(len(blocks), dtype=np.int64))
        found.append((taken, number, offsets))
        if taken <= enough:
            break
    found.sort(key=lambda entry: entry[:2])
    work = WORK
    for _, number, _ in found[:CLIMBS]:
        for share in SMALL:
            if found[0][0] <= enough or work <= 0:
                break
            part = min(work, WORK // CLIMBS)
            offsets, taken, alone = _mended(blocks, orders[number], share, enough, part, seed)
            work -= part
            if taken < found[0][0]:
                found.insert(0, (taken, number, offsets))
            if alone > enough:
                break
    extent, _, best = found[0]
    placement = Placement(blocks, best, extent, blocks.load)
    verify(placement)
    return placement


def place_apart(blocks: Blocks) -> Placement:
    """The same; many bytes are placed in a process of their own, which loads compiled code."""
    return apart(_place, blocks) if int(blocks.bytes.sum()) >= LARGE else place(blocks)


def _place(blocks: Blocks, progress: Progress) -> Placement:
    return place(blocks)


def _by_mixture(blocks: Blocks, slope: float) -> Ints:
    size, length = np.log(blocks.rounded), np.log(blocks.end - blocks.begin)
    return np.argsort(-(np.cos(slope) * size + np.sin(slope) * length), kind="stable")


def _fitted(blocks: Blocks, order: Ints, fixed: int, offsets: Ints) -> tuple[Ints, int]:
    """`offsets` with those of all but the `fixed` first of `order` filled in, and the bytes that all take."""
    from lowtide.planning.addresses.fit import fit

    rows = np.empty((4, len(blocks)), dtype=np.int64)
    return offsets, fit(order, fixed, blocks.begin, blocks.end, blocks.rounded, offsets, rows)


def _mended(blocks: Blocks, order: Ints, share: float, enough: int, work: int, seed: int) -> tuple[Ints, int, int]:
    """Offsets from a better order than `order`, the bytes they take, and those that blocks of at least `share` of the
    load take alone."""
    from lowtide.planning.addresses.fit import Pairs, Scratch, climb, find_pairs

    size, load = blocks.rounded, blocks.load
    count, share = PAIRS + 1, share / 2
    while count > PAIRS:
        share *= 2
        large = np.flatnonzero(size >= share * load)
        large = large[np.argsort(blocks.begin[large], kind="stable")]
        begin, end = blocks.begin[large], blocks.end[large]
        starts = np.zeros(len(large) + 1, dtype=np.int64)
        count = find_pairs(begin, end, Pairs(starts, np.empty(0, dtype=np.int32)))
    pairs = Pairs(starts, np.empty(count, dtype=np.int32))
    find_pairs(begin, end, pairs)
    position = np.empty(len(blocks), dtype=np.int64)
    position[order] = np.arange(len(blocks))
    mended = np.argsort(position[large], kind="stable")
    scratch = Scratch(*(np.empty(len(large), dtype=np.int64) for _ in Scratch._fields))
    put = np.zeros(len(large), dtype=np.int64)
    puts = int(work / (LOOKS + count / len(large)))
    alone = climb(mended, size[large], put, pairs, scratch, enough, puts, seed)
    offsets = np.zeros(len(blocks), dtype=np.int64)
    offsets[large] = put
    small = order[size[order] < share * load]
    return *_fitted(blocks, np.concatenate((large, small)), len(large), offsets), alone


def verify(placement: Placement) -> None:
    """Raise a PlacementError where blocks that live at the same time share bytes, or one lies where it must not."""
    blocks, offsets = placement.blocks, placement.offsets
    if (offsets % ALIGNMENT).any() or (offsets < 0).any() or (offsets + blocks.bytes > placement.extent).any():
        raise PlacementError("a block lies outside of the memory that was planned, or on a wrong address")
    from lowtide.planning.addresses.fit import first_overlap

    clash = first_overlap(np.argsort(blocks.begin, kind="stable"), blocks.begin, blocks.end, offsets, blocks.bytes)
    if clash >= 0:
        raise PlacementError(f"block {clash} shares bytes with another one at the same time")
