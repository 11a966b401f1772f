"""How an op's inputs come to be at hand together, traced backwards: a proof where they cannot, a way where they can.

Whenever an op runs, all that it reads is alive. One of these values was made last: while it was made, all the others
were alive, beside what its op reads and writes. Before that, the others and what its op reads were alive together, and
so on back to nothing. So from the set that an op reads every schedule traces a path of sets to the empty one, each
step within the budget. Where there is no such path, there is no schedule. Where there is one, running it forwards makes
the inputs from nothing; where nothing must be held meanwhile, a budget that allows it for every op can be kept.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge

Key = tuple[float, int]


class Gather:
    """Sets of storages as bit sets, the storage that the program writes last being the highest bit."""

    def __init__(self, view: ProgramView, room: int, *, certify: bool) -> None:
        """`certify`: all that a schedule could do; else no optional ops, and no bytes taken over from an input."""
        problem = view.problem
        self.view, self.problem, self.room = view, problem, room
        self.storages = _by_birth(view)
        self.bit = {s: i for i, s in enumerate(self.storages)}
        self.sizes = [problem.sizes[s] for s in self.storages]
        self.reads = [self.mask(problem.reads[o]) for o in range(len(problem.ops))]
        self.writes = [self.mask(problem.writes[o]) for o in range(len(problem.ops))]
        over = [r if certify else -1 for r in problem.reuses]
        self.taken = [problem.sizes[r] if r >= 0 else 0 for r in over]
        """Per op the bytes of an input that it takes over where nothing reads that input afterwards."""
        self.taken_bit = [1 << self.bit[r] if r >= 0 else 0 for r in over]
        self.makers = [
            [o for o in problem.producers[s] if certify or not problem.ops[o].optional] for s in self.storages
        ]

    def mask(self, storages: Iterable[int]) -> int:
        """Storages as a bit set."""
        found = 0
        for s in storages:
            found |= 1 << self.bit[s]
        return found

    def bytes(self, held: int) -> int:
        """Bytes of a bit set."""
        return sum(self.sizes[i] for i in members(held))

    def trace(
        self,
        goal: int,
        *,
        most: int,
        key: Callable[[int, float], Key] = lambda held, _: (0.0, held),
        there: int = 0,
        rerun: bool = False,
        aside: int = 0,
    ) -> tuple[list[tuple[int, int]] | None, bool]:
        """From nothing (or a part of `there`) to all of `goal` at hand: (op, what must be held while it runs) in order.

        None where there is no way; the flag says whether that is certain, which it is not once `most` sets were looked
        at. `rerun`: only ops that may run any number of times. What stands `aside` is held all along.
        """
        limit = self.room - self.bytes(aside)
        goal &= ~aside
        size = self.bytes(goal)
        came: dict[int, tuple[int, int]] = {}
        best: dict[int, float] = {goal: 0.0}
        queue: list[tuple[Key, float, int, int]] = [(key(goal, 0.0), 0.0, goal, size)]
        looked = 0
        ops, times = self.problem.ops, self.problem.times
        while queue:
            _, spent, held, size = heapq.heappop(queue)
            if spent > best[held]:
                continue
            if not held & ~there:
                charge(SETTINGS.step * (looked + len(best)))
                return _path(came, goal, held), True
            looked += 1
            if looked > most:
                charge(SETTINGS.step * (looked + len(best)))
                return None, False
            for i in members(held):
                for o in self.makers[i]:
                    if rerun and ops[o].once:
                        continue
                    before = ((held & ~self.writes[o]) | self.reads[o]) & ~aside
                    fresh = self.bytes((self.writes[o] | self.reads[o]) & ~held & ~aside)
                    taken = self.taken[o] if not self.taken_bit[o] & held else 0
                    if size + fresh - taken + self.problem.workspaces[o] > limit:
                        continue
                    cost = spent + times[o]
                    if before not in best or cost < best[before]:
                        best[before] = cost
                        came[before] = (held, o)
                        after = size + fresh - self.bytes(self.writes[o] & ~aside)
                        heapq.heappush(queue, (key(before, cost), cost, before, after))
        charge(SETTINGS.step * (looked + len(best)))
        return None, True


def impossible_op(view: ProgramView, budget: int, *, ops: int, sets: int) -> int | None:
    """An op of the program whose inputs provably never are at hand together; the `ops` that need most are tried."""
    problem = view.problem
    gather = Gather(view, budget - problem.resident_bytes, certify=True)
    for o in sorted(problem.program, key=lambda o: (-int(view.least[o]), o))[:ops]:
        path, certain = gather.trace(gather.reads[o], most=sets)
        if path is None and certain:
            return o
    return None


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


def _path(came: dict[int, tuple[int, int]], goal: int, held: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while held != goal:
        held, o = came[held]
        found.append((o, held))
    return found
