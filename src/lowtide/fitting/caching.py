"""What torch's caching allocator reserves on a GPU while an order runs, by its own rules.

It takes segments from the driver, cuts blocks from them and gives no segment back as long as it need not; blocks of one
stream are of no use to another. Holes and streams are why `nvidia-smi` and torchtitan show more than what is alive.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from lowtide.fitting.rank import Rank
from lowtide.planning.schedule import instances

_ROUND, _MIB = 512, 1 << 20
_SMALL = 1 << 20
"""Up to here a request is small, and small ones have segments of their own."""
_SMALL_SEGMENT, _MIDDLE, _MIDDLE_SEGMENT, _LARGE_ROUND = 2 * _MIB, 10 * _MIB, 20 * _MIB, 2 * _MIB
STEPS = 3
"""The first makes the optimizer's state; what the third reserves, all later ones do."""
MAIN, GATHER, REDUCE = "", "gather", "reduce"
"""Streams: FSDP2 gathers into memory of one of its own, and the reduced gradients lie in that of another."""


class OutOfMemory(Exception):
    """The driver has nothing left, also after all unused segments are given back."""


@dataclass(order=True)
class Block:
    """A piece of a segment."""

    size: int
    address: int
    pool: tuple[str, bool] = field(compare=False)
    free: bool = field(compare=False, default=False)
    before: "Block | None" = field(compare=False, default=None, repr=False)
    after: "Block | None" = field(compare=False, default=None, repr=False)


class Cache:
    """The allocator: best fit, split, join with free neighbours."""

    def __init__(self, limit: int | None = None) -> None:
        self.reserved = self.peak = 0
        self._limit = limit
        self._free: dict[tuple[str, bool], list[Block]] = {}
        self._addresses = count(0, 1 << 50)

    def take(self, size: int, stream: str = MAIN) -> Block:
        """A block of at least `size` bytes."""
        size = max(_ROUND, -(-size // _ROUND) * _ROUND)
        pool = (stream, size <= _SMALL)
        free = self._free.setdefault(pool, [])
        place = bisect_left(free, size, key=lambda block: block.size)
        block = free.pop(place) if place < len(free) else self._segment(size, pool)
        rest = block.size - size
        if rest >= _ROUND if pool[1] else rest > _SMALL:
            tail = Block(rest, block.address + size, pool, True, block, block.after)
            if block.after is not None:
                block.after.before = tail
            block.after, block.size = tail, size
            insort(free, tail)
        block.free = False
        return block

    def give(self, block: Block) -> None:
        """Back to the cache, not to the driver."""
        free = self._free[block.pool]
        for other in (block.before, block.after):
            if other is not None and other.free:
                free.remove(other)
                first, second = sorted((block, other), key=lambda b: b.address)
                first.size, first.after = first.size + second.size, second.after
                if second.after is not None:
                    second.after.before = first
                block = first
        block.free = True
        insort(free, block)

    def _segment(self, size: int, pool: tuple[str, bool]) -> Block:
        whole = -(-size // _LARGE_ROUND) * _LARGE_ROUND
        if pool[1]:
            whole = _SMALL_SEGMENT
        elif size < _MIDDLE:
            whole = _MIDDLE_SEGMENT
        if self._limit is not None and self.reserved + whole > self._limit:
            self._release()
            if self.reserved + whole > self._limit:
                raise OutOfMemory
        self.reserved += whole
        self.peak = max(self.peak, self.reserved)
        return Block(whole, next(self._addresses), pool)

    def _release(self) -> None:
        for free in self._free.values():
            kept = [block for block in free if block.before is not None or block.after is not None]
            self.reserved -= sum(block.size for block in free) - sum(block.size for block in kept)
            free[:] = kept


def reserved(rank: Rank, order: Sequence[int], limit: int | None = None) -> int:
    """The most bytes that the allocator reserves while steps in `order` follow each other.

    OutOfMemory where that is more than `limit`. The state of the optimizer is made in the first step, between what that
    has left; gradients of shards stay until the next step begins.
    """
    problem = rank.problem
    lived = instances(problem, order)
    born: list[list[int]] = [[] for _ in order]
    dying: list[list[int]] = [[] for _ in order]
    for instance, (begin, last) in enumerate(zip(lived.born, lived.last, strict=True)):
        born[begin].append(instance)
        if last < len(order):
            dying[max(begin, last)].append(instance)
    cache = Cache(limit)

    def take(s: int) -> list[Block]:
        stream = REDUCE if s in rank.pieces else MAIN
        return [cache.take(size, stream) for size in rank.parts.get(s, (problem.sizes[s],)) if size]

    for s, storage in enumerate(problem.storages):
        if storage.resident and s not in rank.states and s not in rank.buffers:
            take(s)
    before: Block | None = None  # of the gather before: it is free after the next one
    left: list[Block] = []
    for turn in range(STEPS):
        held: dict[int, list[Block]] = {}
        for block in left:
            cache.give(block)
        left = []
        for step, o in enumerate(order):
            gathers = o in rank.gathers
            if gathers:
                flat = problem.workspaces[o]
                given = cache.take(flat - rank.whole(o), GATHER)
                buffer = cache.take(rank.whole(o), GATHER)
                cache.give(given)
                if before is not None:
                    cache.give(before)
                before = buffer
            for instance in born[step]:
                held[instance] = take(lived.storage[instance])
            if problem.workspaces[o] and not gathers:
                cache.give(cache.take(problem.workspaces[o]))
            if turn == 0 and o in rank.updates:
                for s in rank.states:
                    take(s)
            for instance in dying[step]:
                blocks = held.pop(instance)
                if lived.storage[instance] in rank.pieces:
                    left += blocks
                else:
                    for block in blocks:
                        cache.give(block)
        left += [block for blocks in held.values() for block in blocks]
    return cache.peak
