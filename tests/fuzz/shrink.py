"""Makes a finding smaller: leaves out one thing after the other while the finding stays."""

import re
from collections.abc import Callable

from tests.fuzz.judge import Outcome, judge, runs_eagerly
from tests.fuzz.program import Program

Judge = Callable[[Program], Outcome]


def shrink(program: Program, outcome: Outcome, *, run: Judge = judge, tries: int = 60) -> tuple[Program, Outcome]:
    """The smallest program found within `tries` runs that ends in the same way."""
    found = True
    while found and tries > 0:
        found = False
        for smaller in program.smaller():
            if not runs_eagerly(smaller):
                continue
            tries -= 1
            result = run(smaller)
            if same(outcome, result):
                program, found = smaller, True
                break
            if tries <= 0:
                break
    return program, run(program)


def same(one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes have the same cause, as far as their first line tells."""
    return one.name == other.name and (one.name != "crash" or said(one) == said(other))


def said(outcome: Outcome) -> str:
    """The first line without the call, places and numbers: what outcomes are counted by."""
    words = outcome.detail.partition("\n")[0].partition(": ")[2].split(" ")
    kept = " ".join(word for word in words if not word.endswith(":") or "/" not in word)
    return re.sub(r"\d+", "#", kept)[:120]


def cause(outcome: Outcome, program: Program) -> str:
    """What findings are counted by: what is said, or for a difference the change that came before it."""
    if outcome.name != "different":
        return f"{outcome.name}: {said(outcome)}"
    changed = program.change is not None and not outcome.detail.startswith(("call 0", "call 1"))
    return f"different after {program.change.kind}" if program.change is not None and changed else "different"
