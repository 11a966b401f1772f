"""The integer program of a few instants: at each, what is stored must fit; between them, which ops run again.

Without stages it is a relaxation of the whole problem, so its bound is certified: whatever a schedule does, at these
instants it stores something that fits, and all that is read after an instant was stored at it, written since, or run
again. With stages (`allowed`) an op may run again only near where the program reads what it makes: a restriction, hence
no bound, but one that leaves tens of instants easy to solve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.solver import Program, solve
from lowtide.planning.optimal.work import charge_steps

Allowed = list[set[int]]
"""Per op the segments between instants in which it may run again."""


@dataclass(frozen=True)
class Outcome:
    """A solved model: extra time found and certified, and the decision (None where none was found)."""

    bound: float
    objective: float
    decision: Decision | None
    finished: bool


@dataclass
class Model:
    """Columns and rows for `instants`."""

    view: ProgramView
    budget: int
    instants: Sequence[int]
    certify: bool = False
    """Allow all that a schedule could do, so that the bound holds; else leave out packing again between instants."""
    allowed: Allowed | None = None
    """Per op the segments it may run again in; None for all of them, without which there is no bound."""

    def __post_init__(self) -> None:
        self.program = Program()
        self.keep: list[dict[int, int]] = []
        self.run: list[dict[int, int]] = []
        self.impossible = False
        for j in range(len(self.instants)):
            self._columns(j)
        for j in range(len(self.instants)):
            self._rows(j)
        charge_steps(SETTINGS.charges.model_entry * len(self.program.columns))

    def _may_run(self, o: int, j: int) -> bool:
        if self.view.problem.ops[o].once:
            return False
        if o in self.view.futile and (not self.certify or j == len(self.instants) - 1):
            return False
        return self.allowed is None or j in self.allowed[o]

    def _steady(self, s: int, j: int) -> bool:
        """Is `s` stored at instant j exactly if it was at the one before?"""
        problem = self.view.problem
        if problem.reuses[problem.program[self.instants[j]]] == s:
            return False
        return not self.certify and not any(self._may_run(o, j - 1) for o in problem.producers[s])

    def _columns(self, j: int) -> None:
        view, problem, t = self.view, self.view.problem, self.instants[j]
        born, op = view.born, problem.program[t]
        existing: dict[int, bool] = {}

        def before(s: int) -> bool:
            """Could s exist before t?"""
            k = born.get(s)
            if k is not None:
                return k < t
            if s not in existing:
                existing[s] = False
                existing[s] = any(all(before(r) for r in problem.reads[o]) for o in problem.producers[s])
            return existing[s]

        wanted = [s for s, last in view.last.items() if last > t > born[s]]
        now = {s for s in problem.reads[op] if born[s] < t}
        closure, stack = set(wanted), list(wanted)
        allowed = self.allowed
        while stack:
            for o in problem.producers[stack.pop()]:
                if allowed is not None and not any(q >= j for q in allowed[o]):
                    continue
                for s in problem.reads[o]:
                    if s not in closure and before(s):
                        closure.add(s)
                        stack.append(s)
        closure |= now
        free = set(problem.writes[op])
        keep: dict[int, int] = {}
        for s in sorted(closure):
            same = self.keep[j - 1].get(s) if j else None
            if same is not None and self._steady(s, j):
                keep[s] = same
            else:
                first = 0.0 if j or s in born else view.first_time(s)
                keep[s] = self.program.column(first)
            if s in now and s != problem.reuses[op]:
                self.program.lower[keep[s]] = 1.0
        makers = sorted({o for s in closure for o in problem.producers[s]})
        self.keep.append(keep)
        self.run.append(
            {
                o: self.program.column(problem.times[o])
                for o in makers
                if self._may_run(o, j) and all(r in closure or r in free for r in problem.reads[o])
            }
        )
        room = self.budget - problem.resident_bytes - problem.workspaces[op]
        room -= sum(problem.sizes[s] for s in free)
        weights: dict[int, float] = {}
        for s, column in keep.items():
            if problem.sizes[s]:
                weights[column] = weights.get(column, 0.0) + problem.sizes[s]
        self.program.at_most(weights, room)
        if room < 0:
            self.impossible = True

    def _have(self, s: int, j: int) -> list[int]:
        """Columns of which one must be set for `s` to be at hand in segment j."""
        found = [self.keep[j][s]] if s in self.keep[j] else []
        found.extend(self.run[j][o] for o in self.view.problem.producers[s] if o in self.run[j])
        return found

    def _rows(self, j: int) -> None:
        view, problem, t = self.view, self.view.problem, self.instants[j]
        born = view.born
        last = j + 1 == len(self.instants)
        end = view.count if last else self.instants[j + 1] + 1
        free = set(problem.writes[problem.program[t]])
        needed = {s for k in range(t + 1, end) for s in problem.reads[problem.program[k]] if born[s] < t}
        if last:
            needed.update(s for s in problem.kept if born[s] < t)
        for s in sorted(needed):
            self.program.cover(self._have(s, j), None, 1.0)
        for o, column in self.run[j].items():
            for s in problem.reads[o]:
                if s not in free:
                    self.program.cover(self._have(s, j), column, 0.0)
        if not last:
            for s, column in self.keep[j + 1].items():
                before = self.keep[j].get(s)
                if before is not None and before != column and s not in free:
                    self.program.cover(self._have(s, j), column, 0.0)

    def solve(self, *, seconds: float, tolerance: float = SETTINGS.gap) -> Outcome:
        """The least extra time these instants ask for, and a decision that takes it."""
        if self.impossible:
            return Outcome(float("inf"), float("inf"), None, True)
        slack = SETTINGS.met * self.view.problem.base_time
        answer = solve(self.program, seconds=seconds, tolerance=tolerance, slack=slack)
        if answer.values is None:
            return Outcome(answer.bound, answer.objective, None, answer.finished)
        chosen = answer.values > 0.5
        stored = tuple(frozenset(s for s, c in keep.items() if chosen[c]) for keep in self.keep)
        runs = tuple(frozenset(o for o, c in run.items() if chosen[c]) for run in self.run)
        decision = Decision(tuple(self.instants), stored, runs)
        return Outcome(answer.bound, answer.objective, decision, answer.finished)

    def relaxed(self, *, seconds: float) -> float:
        """The bound of the linear relaxation."""
        if self.impossible:
            return float("inf")
        return solve(self.program, seconds=seconds, integer=False).bound


def byte_price(view: ProgramView, budget: int, instant: int) -> float:
    """What one byte less at an instant costs in time, by the linear relaxation."""
    problem = view.problem
    step = max(1, (budget - problem.resident_bytes) // SETTINGS.price_step)
    here = Model(view, budget, [instant]).relaxed(seconds=SETTINGS.price_seconds)
    less = Model(view, budget - step, [instant]).relaxed(seconds=SETTINGS.price_seconds)
    scale = problem.base_time / max(1, int(view.live.max()) - problem.resident_bytes)
    return (less - here) / step if less < float("inf") and less > here else scale
