"""A decision: what is stored at a few instants of the program, and which ops run again between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planning.optimal.lifetimes import instances
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge


@dataclass(frozen=True)
class Decision:
    """`stored[j]` counts while position `instants[j]` runs; `runs[j]` run again after it, before the next."""

    instants: tuple[int, ...]
    stored: tuple[frozenset[int], ...]
    runs: tuple[frozenset[int], ...]


def read_off(view: ProgramView, order: Sequence[int], instants: Sequence[int]) -> Decision:
    """What `order` stores at `instants` and runs again between them."""
    problem = view.problem
    charge(1.2 * SETTINGS.step * len(order))
    step_of: dict[int, int] = {}
    runs: list[set[int]] = [set() for _ in instants]
    done, segment = 0, -1
    for step, o in enumerate(order):
        if view.position[o] == done:
            if segment + 1 < len(instants) and instants[segment + 1] == done:
                segment += 1
                step_of[segment] = step
            done += 1
        elif segment >= 0:
            runs[segment].add(o)
    lived = instances(problem, order)
    stored: list[set[int]] = [set() for _ in instants]
    for s, start, end in zip(lived.storage, lived.born, lived.last, strict=True):
        if end > start:
            for j, step in step_of.items():
                if start < step <= end and not (step == end and problem.reuses[order[step]] == s):
                    stored[j].add(s)
    return Decision(tuple(instants), tuple(map(frozenset, stored)), tuple(map(frozenset, runs)))
