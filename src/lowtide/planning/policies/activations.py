"""Forward, backward and the activations between them, read off a problem that does not name its phases."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from lowtide.errors import InputError
from lowtide.planning.problem import Problem


@dataclass(frozen=True)
class Phases:
    """The program cut in two: `program[: split + 1]` is forward, the rest backward. Steps are program positions."""

    problem: Problem
    split: int

    @cached_property
    def position(self) -> dict[int, int]:
        """Op of the program -> its step."""
        return {o: step for step, o in enumerate(self.problem.program)}

    @cached_property
    def maker(self) -> dict[int, int]:
        """Storage -> the program op that writes it."""
        return {s: o for o in self.problem.program for s in self.problem.writes[o]}

    @cached_property
    def uses(self) -> dict[int, list[int]]:
        """Storage -> the steps of the program that read it."""
        found: dict[int, list[int]] = {s: [] for s in self.maker}
        for step, o in enumerate(self.problem.program):
            for s in self.problem.reads[o]:
                found[s].append(step)
        return found

    @cached_property
    def activations(self) -> tuple[int, ...]:
        """Storages made in forward and read in backward that need not be there at the end."""
        return tuple(
            s
            for s, o in self.maker.items()
            if self.position[o] <= self.split
            and self.uses[s]
            and self.uses[s][-1] > self.split
            and not self.problem.storages[s].keep
        )

    def last_forward(self, s: int) -> int:
        """The last forward step that makes or reads `s`."""
        return max([self.position[self.maker[s]], *(step for step in self.uses[s] if step <= self.split)])

    def first_backward(self, s: int) -> int:
        """The first backward step that reads `s`."""
        return next(step for step in self.uses[s] if step > self.split)


def phases(problem: Problem, split: int | None = None) -> Phases:
    """The phases of `problem`, forward ending with step `split` of the program; where it is not given, it is found.

    Forward ends where the most bytes wait for later reads, each weighted by how long it waits in all, so that a large
    value that is used up at once does not count for much. What must be kept does not count either: the gradients that
    a step hands over pile up until its end and would draw the split there.
    """
    if split is not None and not 0 <= split < len(problem.program):
        raise InputError(f"the split must be a step of the program, 0 to {len(problem.program) - 1}, not {split}")
    if split is None:
        waiting = _waiting(problem)
        split = waiting.index(max(waiting))
    return Phases(problem, split)


def _waiting(problem: Problem) -> list[int]:
    """Per step of the program: bytes x steps of what was made by then and is read after it, without what is kept."""
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, o in enumerate(problem.program):
        for s in problem.reads[o]:
            last[s] = step
        for s in problem.writes[o]:
            born[s] = step
    change = [0] * (len(problem.program) + 1)
    for s, end in last.items():
        if not problem.storages[s].keep:
            weight = problem.sizes[s] * (end - born[s])
            change[born[s]] += weight
            change[end] -= weight
    return list(accumulate(change))[:-1]
