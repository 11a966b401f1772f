"""A decision: what is stored at a few instants of the program, and which ops run again between them.

It is found by a model; an order is built of it by making what is missing on demand, as late as it
goes.
"""

from dataclasses import dataclass

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge_steps


@dataclass(frozen=True)
class Decision:
    """`stored[j]` counts while position `instants[j]` runs; `runs[j]` run again after it, before the next."""

    instants: tuple[int, ...]
    stored: tuple[frozenset[int], ...]
    runs: tuple[frozenset[int], ...]


class Constructor:
    """Walks the program; what an instant does not store is forgotten there, what is missing is made when read."""

    def __init__(self, view: ProgramView, decision: Decision) -> None:
        self.view, self.problem, self.decision = view, view.problem, decision
        self.order: list[int] = []
        self.have: set[int] = set()
        self.segment = -1
        self.early = self._early()

    def build(self) -> list[int] | None:
        """The order; None where the decision cannot be carried out (it leaned on an op that may run only once)."""
        problem, decision = self.problem, self.decision
        following = 0
        for k, o in enumerate(problem.program):
            at_instant = following < len(decision.instants) and decision.instants[following] == k
            if at_instant:
                stored = sorted(decision.stored[following], key=lambda s: self.view.born.get(s, -1))
                if not all(s in self.have or self._make(s) for s in stored):
                    return None
            if not self._run(o):
                return None
            if at_instant:
                self.have &= decision.stored[following] | set(problem.writes[o])
                self.segment = following
                following += 1
            for early in self.early.get(k, ()):
                if not self._run(early):
                    return None
        if not all(s in self.have or self._make(s) for s in problem.kept):
            return None
        return self.order

    def _early(self) -> dict[int, list[int]]:
        """Optional ops for what the first instant stores smaller: right after the last use of what they read."""
        found: dict[int, list[int]] = {}
        if not self.decision.instants:
            return found
        view, problem, first = self.view, self.problem, self.decision.instants[0]
        for s in sorted(self.decision.stored[0]):
            if s in view.born:
                continue
            o = min(problem.producers[s], key=lambda q: problem.times[q])
            uses = [k for r in problem.reads[o] for k in (view.born.get(r, 0), *view.needs.get(r, ())) if k < first]
            found.setdefault(max(uses, default=0), []).append(o)
        return found

    def _make(self, s: int) -> bool:
        o = self._maker(s)
        return o is not None and self._run(o)

    def _run(self, target: int) -> bool:
        """Run `target` after all that it lacks, deepest first."""
        problem, have = self.problem, self.have
        stack = [target]
        while stack:
            o = stack[-1]
            missing = next((s for s in problem.reads[o] if s not in have), None)
            if missing is None:
                stack.pop()
                self.order.append(o)
                have.update(problem.writes[o])
                continue
            maker = self._maker(missing)
            if maker is None or len(stack) > len(problem.ops):
                return False
            stack.append(maker)
        return True

    def _maker(self, s: int) -> int | None:
        """Which op makes `s` again: one that the decision runs in this segment, else one of the program."""
        able = [o for o in self.problem.producers[s] if not self.problem.ops[o].once]
        if len(able) < 2:
            return able[0] if able else None
        chosen = [o for o in able if self.segment >= 0 and o in self.decision.runs[self.segment]]
        chosen = chosen or [o for o in able if not self.problem.ops[o].optional] or able
        return min(chosen, key=lambda o: (not self.have.issuperset(self.problem.reads[o]), self.problem.times[o], o))


def build(view: ProgramView, decision: Decision) -> list[int] | None:
    """The order that carries out `decision`, or None."""
    order = Constructor(view, decision).build()
    charge_steps(SETTINGS.charges.built * (view.count if order is None else len(order)))
    return order
