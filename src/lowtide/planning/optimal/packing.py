"""Packing taken out of a problem: what is left is plain, and its bounds and orders say something about the whole.

A family is a storage of the program and the forms that optional ops make of it, and of which they make it again. While
it waits, some member of the family is alive: so it takes at least the bytes of the smallest, and a schedule that uses
that pays for packing and unpacking at least once. docs/planner.md has the argument.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lowtide.planning.problem import Problem, Storage


@dataclass(frozen=True)
class Packing:
    """What a storage that can be packed takes at least: bytes while it waits, and time, once in a schedule."""

    bytes: int
    time: float


def packings(problem: Problem) -> dict[int, Packing]:
    """The storages of the program that optional ops can make again.

    Where the ops are no packing of one storage (they read others too, or make it from nothing), it costs nothing.
    """
    made = {s for o in problem.program for s in problem.writes[o]}
    found: dict[int, Packing] = {}
    for storages, ops in _families(problem):
        own = storages & made
        packs = all(storages & set(problem.reads[o]) for o in ops)
        for s in own & {s for o in ops for s in problem.writes[o]}:
            to = [problem.times[o] for o in ops if s in problem.reads[o]]
            back = [problem.times[o] for o in ops if s in problem.writes[o]]
            if packs and len(own) == 1 and to:
                found[s] = Packing(min(problem.sizes[r] for r in storages), min(to) + min(back))
            else:
                found[s] = Packing(0, 0.0)
    return found


def _families(problem: Problem) -> list[tuple[set[int], list[int]]]:
    """Optional ops with all that they touch, beside residents: those that share a storage together."""
    families: list[tuple[set[int], list[int]]] = []
    for o, op in enumerate(problem.ops):
        if op.optional:
            storages, ops = {*problem.reads[o], *problem.writes[o]}, [o]
            apart = []
            for family in families:
                if storages.isdisjoint(family[0]):
                    apart.append(family)
                else:
                    storages, ops = storages | family[0], family[1] + ops
            families = [*apart, (storages, ops)]
    return families


def unpacked(problem: Problem, packed: Collection[int] = ()) -> Problem:
    """The program's ops alone, in their order, where what is `packed` waits in the smallest bytes of its family.

    Ops that read or write it need all of its bytes: the difference is added to their workspace.
    """
    known = packings(problem)
    less = {s: problem.sizes[s] - known[s].bytes for s in packed}
    made = {s for o in problem.program for s in problem.writes[o]}
    storages = [
        storage if storage.resident or s in made else Storage(0, resident=True)
        for s, storage in enumerate(problem.storages)
    ]
    for s, size in less.items():
        storages[s] = replace(storages[s], bytes=storages[s].bytes - size)
    ops = []
    for o in problem.program:
        op = problem.ops[o]
        whole = {*problem.writes[o], *(s for s in problem.reads[o] if s != op.reuses)}
        ops.append(replace(op, workspace=op.workspace + sum(less.get(s, 0) for s in whole)))
    return Problem(problem.name, tuple(storages), tuple(ops))


def pairs(problem: Problem) -> dict[int, tuple[int, int]]:
    """Per storage of the program the cheapest op that packs it and the one that unpacks it, each from it alone."""
    found: dict[int, tuple[int, int]] = {}
    for s in packings(problem):
        to = [o for o in problem.readers[s] if _alone(problem, o)]
        back = [o for o in problem.producers[s] if _alone(problem, o)]
        able = [(o, q) for o in to for q in back if problem.reads[q][0] in problem.writes[o]]
        if able:
            found[s] = min(able, key=lambda pair: (problem.times[pair[0]] + problem.times[pair[1]], pair))
    return found


def packed_by(problem: Problem, order: Sequence[int]) -> frozenset[int]:
    """The storages that optional ops make again in an order."""
    optional = {o for o in order if problem.ops[o].optional}
    return frozenset(s for s in packings(problem) if not optional.isdisjoint(problem.producers[s]))


def with_packing(problem: Problem, packed: Collection[int], order: Sequence[int]) -> list[int]:
    """An order of the program's ops in which what is `packed` is packed after each read and unpacked before the next.

    For storages that have a pair of ops for it; others stay as they are.
    """
    able = pairs(problem)
    pack = {s: able[s][0] for s in packed if s in able}
    unpack = {s: able[s][1] for s in pack}
    later: dict[int, list[bool]] = {}
    reading: dict[int, bool] = dict.fromkeys(problem.kept, True)
    for step in range(len(order) - 1, -1, -1):
        o = order[step]
        touched = [s for s in (*problem.reads[o], *problem.writes[o]) if s in pack]
        later[step] = [reading.get(s, False) for s in touched]
        reading.update((s, False) for s in problem.writes[o])
        reading.update((s, True) for s in problem.reads[o])
    found: list[int] = []
    waiting: set[int] = set()
    for step, o in enumerate(order):
        for s in problem.reads[o]:
            if s in waiting:
                found.append(unpack[s])
                waiting.discard(s)
        found.append(o)
        touched = [s for s in (*problem.reads[o], *problem.writes[o]) if s in pack]
        for s, read in zip(touched, later[step], strict=True):
            if read and step + 1 < len(order) and s not in problem.reads[order[step + 1]]:
                found.append(pack[s])
                waiting.add(s)
            else:
                waiting.discard(s)
    return found + [unpack[s] for s in sorted(waiting & set(problem.kept))]


def _alone(problem: Problem, o: int) -> bool:
    """Is it an optional op that may run at any time, from one storage alone?"""
    return problem.ops[o].optional and not problem.ops[o].once and len(problem.reads[o]) == 1
