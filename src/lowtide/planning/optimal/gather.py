"""How an op's inputs come to be at hand together, traced backwards: a proof where they cannot.

Whenever an op runs, all that it reads is alive. One of these values was made last: while it was made, all the others
were alive, beside what its op reads and writes. Before that, the others and what its op reads were alive together, and
so on back to nothing. So from the set that an op reads every schedule traces a path of sets to the empty one, each
step within the budget. Where there is no such path, there is no schedule.
"""

import heapq
from collections.abc import Iterable, Iterator

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.work import charge_steps


class Gather:
    """Sets of storages as bit sets, the storage that the program writes last being the highest bit."""

    def __init__(self, view: ProgramView, room: int) -> None:
        problem = view.problem
        self.problem, self.room = problem, room
        self.storages = _by_birth(view)
        self.bit = {s: i for i, s in enumerate(self.storages)}
        self.sizes = [problem.sizes[s] for s in self.storages]
        self.reads = [self.mask(problem.reads[o]) for o in range(len(problem.ops))]
        self.writes = [self.mask(problem.writes[o]) for o in range(len(problem.ops))]
        self.taken = [problem.sizes[r] if r >= 0 else 0 for r in problem.reuses]
        """Per op the bytes of an input that it takes over where nothing reads that input afterwards."""
        self.taken_bit = [1 << self.bit[r] if r >= 0 else 0 for r in problem.reuses]

    def mask(self, storages: Iterable[int]) -> int:
        """Storages as a bit set."""
        return sum(1 << self.bit[s] for s in set(storages))

    def bytes(self, held: int) -> int:
        """Bytes of a bit set."""
        return sum(self.sizes[i] for i in members(held))

    def cannot(self, goal: int, *, most: int) -> bool:
        """Is it certain that all of `goal` never is at hand? Not once `most` sets were looked at; the lowest first."""
        found, queue, looked = {goal}, [goal], 0
        while queue and looked <= most:
            held = heapq.heappop(queue)
            if not held:
                break
            looked += 1
            size = self.bytes(held)
            for o in {o for i in members(held) for o in self.problem.producers[self.storages[i]]}:
                before = (held & ~self.writes[o]) | self.reads[o]
                fresh = self.bytes((self.writes[o] | self.reads[o]) & ~held)
                taken = 0 if self.taken_bit[o] & held else self.taken[o]
                if before not in found and size + fresh - taken + self.problem.workspaces[o] <= self.room:
                    found.add(before)
                    heapq.heappush(queue, before)
        charge_steps(looked + len(found))
        return not queue and 0 not in found


def impossible_op(view: ProgramView, budget: int, *, ops: int, sets: int) -> int | None:
    """An op of the program whose inputs provably never are at hand together; the `ops` that need most are tried."""
    problem = view.problem
    gather = Gather(view, budget - problem.resident_bytes)
    most = sorted(problem.program, key=lambda o: (-int(view.least[o]), o))[:ops]
    return next((o for o in most if gather.cannot(gather.reads[o], most=sets)), None)


def members(held: int) -> Iterator[int]:
    """The places of a bit set's members, the first written first."""
    while held:
        low = held & -held
        yield low.bit_length() - 1
        held ^= low


def _by_birth(view: ProgramView) -> list[int]:
    """Storages that are not resident, by the place at which the program writes them or what they are made of."""
    problem, born = view.problem, view.born

    def place(s: int) -> float:
        if s in born:
            return born[s]
        return max((born.get(r, -1) for o in problem.producers[s] for r in problem.reads[o]), default=-1) + 0.5

    return sorted((s for s in range(len(problem.storages)) if problem.producers[s]), key=lambda s: (place(s), s))
