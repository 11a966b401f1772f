"""Groups of blocks that rebuild their entries on return: a cheap second pass over what was saved, block by block."""

from collections.abc import Sequence

from lowtide.planning.optimal.blocks import Blocks
from lowtide.planning.optimal.options import Option, Span, outward_peak


def group_options(blocks: Blocks, singles: Sequence[Sequence[Option]], longest: int) -> dict[Span, list[Option]]:
    """For every span of two blocks and more, one option per price: each block saves what it saves at that price.

    On return the pass from the group's entry makes the entries of its blocks again from what they saved, and holds
    them; then the blocks are dealt with one by one, the last first.
    """
    passing = [outward_peak(blocks, (b, b + 1), frozenset()) for b in range(blocks.count)]
    found: dict[Span, list[Option]] = {}
    prices = min(map(len, singles), default=0)
    for price in range(prices):
        rebuild = [_rebuild_time(blocks, b, singles[b][price].saved) for b in range(blocks.count)]
        for i in range(blocks.count - 1):
            for option_end, option in _growing(blocks, singles, passing, rebuild, price, i, longest):
                found.setdefault((i, option_end), []).append(option)
    return found


def _growing(
    blocks: Blocks,
    singles: Sequence[Sequence[Option]],
    passing: Sequence[int],
    rebuild: Sequence[float | None],
    price: int,
    i: int,
    longest: int,
) -> list[tuple[int, Option]]:
    """The groups that begin with block i, each a block longer than the one before."""
    sizes = blocks.facts.problem.sizes
    first = singles[i][price]
    saved, held = set(first.saved), set(first.saved)
    time, outward = first.time, first.outward
    back, on_return = first.back, [frozenset(held)]
    stored = held_bytes = first.stored
    found: list[tuple[int, Option]] = []
    for b in range(i + 1, min(blocks.count, i + longest)):
        through = rebuild[b - 1]
        if through is None:
            break
        option = singles[b][price]
        outward = max(outward, stored + sum(sizes[s] for s in blocks.entry[b] - blocks.entry[i]) + option.outward)
        fresh = (blocks.entry[b] - blocks.entry[i]) - held
        held_bytes += sum(sizes[s] for s in fresh)
        held |= fresh
        new = option.saved - held
        back = max(back, held_bytes + option.back, held_bytes + passing[b])
        held_bytes += sum(sizes[s] for s in new)
        held |= new
        stored += sum(sizes[s] for s in option.saved - saved)
        saved |= option.saved
        time += through + option.time
        on_return.append(frozenset(held))
        found.append((b + 1, Option(frozenset(saved), stored, time, outward, back, tuple(on_return))))
    return found


def _rebuild_time(blocks: Blocks, b: int, saved: frozenset[int]) -> float | None:
    """Time to make what block b passes on from its entry and what it saved; None where an op may run only once."""
    if b + 1 >= blocks.count:
        return None
    problem, facts = blocks.facts.problem, blocks.facts
    low = blocks.cuts[b]
    stack = [s for s in blocks.entry[b + 1] if facts.born[s] >= low and s not in saved]
    seen, ops = set(stack), set[int]()
    while stack:
        o = problem.program[facts.born[stack.pop()]]
        if o in ops:
            continue
        if problem.ops[o].once:
            return None
        ops.add(o)
        for s in problem.reads[o]:
            if facts.born[s] >= low and s not in saved and s not in seen:
                seen.add(s)
                stack.append(s)
    return sum(problem.times[o] for o in ops)
