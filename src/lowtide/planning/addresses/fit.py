"""Blocks put into memory one after the other, each at the lowest address that is free while it lives; compiled.

Greedy alone is as good as its order. `climb` mends the order as squeaky wheels are oiled (Joslin and Clements, 1999):
the block that sticks out goes to an earlier place in it, and everything behind that place is put anew.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtide.planning.addresses.blocks import Ints
from lowtide.planning.optimal.compiled import compiled, entry

NEAR = 0.7
"""How often the place is right before a block that lives at the same time; else it is any earlier one."""
TRIES = 8
"""To find such a block."""
NOWHERE = 2**62


class Pairs(NamedTuple):
    """Which blocks live at the same time: of block k `others[starts[k]:starts[k + 1]]`."""

    starts: Ints
    others: NDArray[np.int32]


class Scratch(NamedTuple):
    """Room that the climb needs, for as many numbers as there are blocks."""

    place: Ints
    """Of each block in the order."""
    low: Ints
    high: Ints
    """Of the neighbours of one block, sorted."""
    offset: Ints
    order: Ints


@entry
def fit(order: Ints, fixed: int, begin: Ints, end: Ints, size: Ints, offset: Ints, rows: Ints) -> int:
    """Give the blocks of `order` their `offset`, the first `fixed` of them excepted, which have theirs; returns the
    bytes that all take together. `rows` is room for four rows of the length of `order`: what is placed, by offset."""
    extent = 0
    for count in range(len(order)):
        block = order[count]
        need, first, until = size[block], begin[block], end[block]
        place = offset[block]
        if count >= fixed:
            place = np.int64(0)
            for k in range(count):
                if rows[2, k] >= until or rows[3, k] <= first:
                    continue
                if rows[0, k] - place >= need:
                    break
                place = max(place, rows[1, k])
            offset[block] = place
        extent = max(extent, place + need)
        at = count
        while at > 0 and rows[0, at - 1] > place:
            for row in range(4):
                rows[row, at] = rows[row, at - 1]
            at -= 1
        rows[0, at], rows[1, at], rows[2, at], rows[3, at] = place, place + need, first, until
    return extent


@entry
def find_pairs(begin: Ints, end: Ints, pairs: Pairs) -> int:
    """Fill `pairs` for blocks that stand in the order of `begin`; how many there are, each counted twice. Where that is
    more than there is room for, nothing is filled in."""
    starts, others = pairs.starts, pairs.others
    count, total = len(begin), 0
    starts[:] = 0
    for k in range(count):
        j = k + 1
        while j < count and begin[j] < end[k]:
            starts[k + 1] += 1
            starts[j + 1] += 1
            j += 1
        total += 2 * (j - k - 1)
    if total > len(others):
        return total
    for k in range(count):
        starts[k + 1] += starts[k]
    for k in range(count):
        j = k + 1
        while j < count and begin[j] < end[k]:
            others[starts[k]], others[starts[j]] = j, k
            starts[k] += 1
            starts[j] += 1
            j += 1
    for k in range(count, 0, -1):
        starts[k] = starts[k - 1]
    starts[0] = 0
    return total


@compiled
def _put(order: Ints, start: int, size: Ints, offset: Ints, pairs: Pairs, scratch: Scratch, limit: int) -> int:
    """Put the blocks of `order` from place `start` on; the place of the first that sticks out of `limit`, or the
    length of the order where none does."""
    starts, others = pairs.starts, pairs.others
    low, high = scratch.low, scratch.high
    for place in range(start, len(order)):
        block = order[place]
        count = 0
        for k in range(starts[block], starts[block + 1]):
            other = others[k]
            if scratch.place[other] >= place:
                continue
            at, address = count, offset[other]
            while at > 0 and low[at - 1] > address:
                low[at], high[at] = low[at - 1], high[at - 1]
                at -= 1
            low[at], high[at] = address, address + size[other]
            count += 1
        address = np.int64(0)
        for k in range(count):
            if low[k] - address >= size[block]:
                break
            address = max(address, high[k])
        offset[block] = address
        if address + size[block] > limit:
            return place
    return len(order)


@compiled
def _copy(source: Ints, target: Ints) -> None:
    for k in range(len(source)):
        target[k] = source[k]


@compiled
def _extent(size: Ints, offset: Ints) -> int:
    found = 0
    for block in range(len(size)):
        found = max(found, offset[block] + size[block])
    return found


@entry
def climb(
    order: Ints, size: Ints, offset: Ints, pairs: Pairs, scratch: Scratch, enough: int, work: int, seed: int
) -> int:
    """Put all blocks in `order`, then mend the order until they take no more than `enough` bytes or `work`, in blocks
    put, is done. Leaves the best `offset` and the order it came from, and returns the bytes it takes."""
    np.random.seed(seed)
    count = len(order)
    for place in range(count):
        scratch.place[order[place]] = place
    start, best = 0, NOWHERE
    while True:
        stopped = _put(order, start, size, offset, pairs, scratch, best - 1)
        work -= stopped - start + 1
        if stopped == count:
            best = _extent(size, offset)
            _copy(offset, scratch.offset)
            _copy(order, scratch.order)
            stopped = 0
            while offset[order[stopped]] + size[order[stopped]] < best:
                stopped += 1
        if best <= enough or work < 0 or stopped == 0:
            break
        block = order[stopped]
        start = int(stopped * np.random.random())
        if np.random.random() < NEAR:
            around = pairs.starts[block + 1] - pairs.starts[block]
            for _ in range(TRIES):
                other = pairs.others[pairs.starts[block] + np.random.randint(around)]
                if scratch.place[other] < stopped:
                    start = scratch.place[other]
                    break
        for place in range(stopped, start, -1):
            order[place] = order[place - 1]
            scratch.place[order[place]] = place
        order[start] = block
        scratch.place[block] = start
    _copy(scratch.offset, offset)
    _copy(scratch.order, order)
    return best


@entry
def first_overlap(by_begin: Ints, begin: Ints, end: Ints, offset: Ints, size: Ints) -> int:
    """A block that shares bytes with another one in the same time, or -1; `by_begin` are the blocks in that order."""
    for k in range(len(by_begin)):
        block = by_begin[k]
        for j in range(k + 1, len(by_begin)):
            other = by_begin[j]
            if begin[other] >= end[block]:
                break
            if offset[other] < offset[block] + size[block] and offset[block] < offset[other] + size[other]:
                return int(block)
    return -1
