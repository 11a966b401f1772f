"""Makes a finding smaller: leaves out one thing after the other while the finding stays."""

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
    return one.name == other.name and (one.name != "crash" or cause(one) == cause(other))


def cause(outcome: Outcome, program: Program | None = None) -> str:
    """The first line of what is said, without numbers, or the change that came before: what findings are counted by."""
    line = outcome.detail.partition("\n")[0]
    if outcome.name == "different":
        changed = program is not None and program.change is not None and not line.startswith(("call 0", "call 1"))
        return f"after {program.change.kind}" if changed and program and program.change else "with no change"
    return "".join("#" if letter.isdigit() else letter for letter in line.partition(": ")[2])[:120]
