"""Budgets that cannot be kept: proofs by a single op or its inputs, and the least peak that short work reaches.

Whenever an op runs, all that it reads is alive. One of these values was made last: while it was made, all the others
were alive, beside what its op reads and writes. Before that, the others and what its op reads were alive together, and
so on back to nothing. So from the set that an op reads every schedule traces a path of sets to the empty one, each
step within the budget. Where there is no such path, there is no schedule.
"""

import heapq
from collections.abc import Iterable, Iterator

from lowtide.planning.optimal.exact import solve_exactly
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.walks import walked_within
from lowtide.planning.optimal.work import charge_steps
from lowtide.planning.policies import BudgetInfeasible


def refuse_hopeless(best: Incumbent) -> None:
    """One op that alone needs more than the budget, or whose inputs cannot all be at hand within it."""
    o = hopeless_op(best.view, best.budget)
    if o is None:
        o = impossible_op(best.view, best.budget, ops=SETTINGS.traced_ops, sets=SETTINGS.traced_sets)
    if o is None:
        return
    problem = best.view.problem
    storages = {*problem.reads[o], *problem.writes[o]}
    blockers = sorted(((s, problem.sizes[s]) for s in storages), key=lambda entry: (-entry[1], entry[0]))
    lower_floor(best)
    workspace = (problem.ops[o].name, problem.workspaces[o])
    raise BudgetInfeasible(problem, best.budget, floor=best.floor, proven=True, blockers=blockers, workspace=workspace)


def hopeless_op(view: ProgramView, budget: int) -> int | None:
    """An op of the program that alone needs more than the budget."""
    needs = [(int(view.least[o]), o) for o in view.problem.program]
    worst, o = max(needs, key=lambda entry: (entry[0], -entry[1]))
    return o if worst > budget else None


def impossible_op(view: ProgramView, budget: int, *, ops: int, sets: int) -> int | None:
    """An op of the program whose inputs provably never are at hand together; the `ops` that need most are tried."""
    gather = Gather(view, budget - view.problem.resident_bytes)
    most = sorted(view.problem.program, key=lambda o: (-int(view.least[o]), o))[:ops]
    return next((o for o in most if gather.cannot(gather.reads[o], most=sets)), None)


class Gather:
    """Sets of storages as bit sets, the storage that the program writes last being the highest bit."""

    def __init__(self, view: ProgramView, room: int) -> None:
        self.problem, self.room = view.problem, room
        problem, born = view.problem, view.born

        def place(s: int) -> float:
            """Where the program writes it, or what it is made of."""
            made_of = (born.get(r, -1) for o in problem.producers[s] for r in problem.reads[o])
            return born[s] if s in born else max(made_of, default=-1) + 0.5

        written = [s for s in range(len(problem.storages)) if problem.producers[s]]
        self.storages = sorted(written, key=lambda s: (place(s), s))
        self.bit = {s: 1 << i for i, s in enumerate(self.storages)}
        self.reads = [self._mask(storages) for storages in problem.reads]
        self.writes = [self._mask(storages) for storages in problem.writes]

    def _mask(self, storages: Iterable[int]) -> int:
        return sum(self.bit[s] for s in set(storages))

    def _members(self, held: int) -> Iterator[int]:
        """Storages of a bit set, the first written first."""
        while held:
            low = held & -held
            yield self.storages[low.bit_length() - 1]
            held ^= low

    def _bytes(self, held: int) -> int:
        return sum(self.problem.sizes[s] for s in self._members(held))

    def cannot(self, goal: int, *, most: int) -> bool:
        """Is it certain that all of `goal` never is at hand? Not once `most` sets were looked at; the lowest first."""
        problem = self.problem
        found, queue, looked = {goal}, [goal], 0
        while queue and looked <= most:
            held = heapq.heappop(queue)
            if not held:
                break
            looked += 1
            size = self._bytes(held)
            for o in {o for s in self._members(held) for o in problem.producers[s]}:
                before = (held & ~self.writes[o]) | self.reads[o]
                fresh = self._bytes((self.writes[o] | self.reads[o]) & ~held)
                r = problem.reuses[o]  # taken over, unless something still wants it
                taken = 0 if r < 0 or self.bit[r] & held else problem.sizes[r]
                if before not in found and size + fresh - taken + problem.workspaces[o] <= self.room:
                    found.add(before)
                    heapq.heappush(queue, before)
        charge_steps(looked + len(found))
        return not queue and 0 not in found


def lower_floor(best: Incumbent) -> None:
    """Halve the way between what single ops need and the least peak seen, keeping every order that has less."""
    view, problem = best.view, best.view.problem
    low = max(best.budget + 1, *(int(view.least[o]) for o in problem.program))
    for step in range(SETTINGS.floor_steps):
        if low >= best.floor or best.left() < SETTINGS.floor_left * best.whole:
            return
        target = low if step == 0 else (low + best.floor) // 2
        order = _within(best, target)
        if order is None:
            low = target + 1
        else:
            best.over(order)


def _within(best: Incumbent, budget: int) -> list[int] | None:
    order, finished = solve_exactly(best.view.problem, budget)
    if finished:
        return None if order is None else list(order)
    repaired = repair(best.view, best.floor_order, budget)
    return repaired if repaired is not None else walked_within(best, budget)
