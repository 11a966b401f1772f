"""A decision: what is stored at a few instants of the program, and which ops run again between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.work import STEP, charge


@dataclass(frozen=True)
class Decision:
    """`stored[j]` counts while position `instants[j]` runs; `runs[j]` run again after it, before the next."""

    instants: tuple[int, ...]
    stored: tuple[frozenset[int], ...]
    runs: tuple[frozenset[int], ...]


def read_off(facts: Facts, order: Sequence[int], instants: Sequence[int]) -> Decision:
    """What `order` stores at `instants` and runs again between them."""
    problem = facts.problem
    charge(1.2 * STEP * len(order))
    step_of: dict[int, int] = {}
    runs: list[set[int]] = [set() for _ in instants]
    done, segment = 0, -1
    newest: dict[int, int] = {}
    storage: list[int] = []
    born: list[int] = []
    last: list[int] = []
    for step, o in enumerate(order):
        for s in problem.reads[o]:
            last[newest[s]] = step
        for s in problem.writes[o]:
            newest[s] = len(born)
            storage.append(s)
            born.append(step)
            last.append(step)
        if facts.position[o] == done:
            if segment + 1 < len(instants) and instants[segment + 1] == done:
                segment += 1
                step_of[segment] = step
            done += 1
        elif segment >= 0:
            runs[segment].add(o)
    for s in problem.kept:
        last[newest[s]] = len(order)
    stored: list[set[int]] = [set() for _ in instants]
    for s, start, end in zip(storage, born, last, strict=True):
        if end > start:
            for j, step in step_of.items():
                if start < step <= end and not (step == end and problem.reuses[order[step]] == s):
                    stored[j].add(s)
    return Decision(tuple(instants), tuple(map(frozenset, stored)), tuple(map(frozenset, runs)))
