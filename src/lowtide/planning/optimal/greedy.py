"""One way through the program, holding what fits: for graphs that are no chain, and where little fits.

At each position it makes again what the next op lacks, by the cheapest path of sets that fits (`gather.py`), and drops
what it can do without to make room. What must still run again is known: the ops of values that the rest of the program
needs and that are not held, and those of what they need in turn. A value is dropped where that adds least to it, for
its bytes and for how long it would lie idle.
"""

from bisect import bisect_left

from lowtide.planning.optimal.gather import Gather, Key, members
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance, charge


class Greedy:
    """Looks for an order within the budget; optional ops are not used."""

    def __init__(self, view: ProgramView, budget: int, *, until: float = 0.0) -> None:
        """`until`: the work left at which it gives up."""
        problem = view.problem
        self.view, self.problem, self.until = view, problem, until
        self.gather = gather = Gather(view, budget - problem.resident_bytes, certify=False)
        self.maker = [makers[0] if makers else -1 for makers in gather.makers]
        once = (s for s, k in view.born.items() if problem.ops[problem.program[k]].once)
        self.fixed = gather.mask(once) | gather.mask(problem.kept)
        """Never dropped: what cannot be made again, and what is wanted at the end, where all of it must fit anyway."""
        self.needs = [view.needs.get(s, []) for s in gather.storages]
        self.wanted = self._wanted()
        self.held, self.used, self.k = 0, 0, 0
        self.order: list[int] = []
        self.rerun: set[int] = set()
        """Ops that must run again, with what is held now."""
        self.useful = 0
        """What is of use for that or for the program."""

    def _wanted(self) -> list[int]:
        """Per position what the program from it on reads of what was written before it."""
        gather = self.gather
        wanted = [0] * (self.view.count + 1)
        wanted[-1] = gather.mask(self.problem.kept)
        for k in range(self.view.count - 1, -1, -1):
            o = self.problem.program[k]
            wanted[k] = (wanted[k + 1] & ~gather.writes[o]) | gather.reads[o]
        return wanted

    def search(self) -> list[int] | None:
        """The order; None where it gets stuck. Behind the last op what must be kept is made."""
        for k in range(self.view.count + 1):
            self.k = k
            if self._late() or not self._advance():
                return None
            self._see_ahead(self.wanted[min(self.k + 1, self.view.count)])
            self.held &= self.useful
            self.used = self.gather.bytes(self.held)
        return self.order

    def _late(self) -> bool:
        return allowance().left() <= self.until

    def _see_ahead(self, wanted: int) -> None:
        self.rerun = self._must_rerun(wanted, self.held)
        self.useful = wanted
        for o in self.rerun:
            self.useful |= self.gather.reads[o]

    def _must_rerun(self, missing: int, held: int) -> set[int]:
        """Ops that must run again for values that are missing, and for what they read in turn."""
        found: set[int] = set()
        stack = missing & ~held
        while stack:
            i = stack.bit_length() - 1
            stack ^= 1 << i
            o = self.maker[i]
            if o not in found:
                found.add(o)
                stack |= self.gather.reads[o] & ~held
        charge(SETTINGS.greedy_look * (1 + len(found)))
        return found

    def _advance(self) -> bool:
        """Make what the op at this position lacks and run it; False where no path is found that fits."""
        last = self.k == self.view.count
        goal = self.wanted[self.k] if last else self.gather.reads[self.problem.program[self.k]]
        if goal & ~self.held:
            path = self._path(goal)
            if path is None or len(self.order) + len(path) > SETTINGS.greedy_longest * self.view.count:
                return False
            for o, after in path:
                if self._late():  # a path may be thousands of runs long
                    return False
                self._run(o, after)
        if not last:
            self._run(self.problem.program[self.k], goal)
        return self.used <= self.gather.room

    def _path(self, goal: int) -> list[tuple[int, int]] | None:
        aside = self.held & self.fixed & self.wanted[self.k]

        def cheap(held: int, spent: float) -> Key:
            return spent + sum(self.problem.times[o] for o in self._must_rerun(held, self.held)), held

        there, trace = self.held & ~aside, self.gather.trace
        path, certain = trace(goal, most=SETTINGS.greedy_cheap, key=cheap, there=there, rerun=True, aside=aside)
        if path is None and not certain:
            path, _ = trace(goal, most=SETTINGS.greedy_any, there=there, rerun=True, aside=aside)
        return path

    def _run(self, o: int, after: int) -> None:
        """Run an op whose inputs are there, dropping what is not needed `after` it for the sake of room."""
        gather = self.gather
        fresh = gather.bytes(gather.writes[o] & ~self.held)
        self._make_room(fresh + self.problem.workspaces[o], after | gather.reads[o] | gather.writes[o])
        self.order.append(o)
        self.held |= gather.writes[o]
        self.used += fresh
        charge(3 * SETTINGS.greedy_look)

    def _make_room(self, size: int, pinned: int) -> None:
        """Drop what costs least until `size` more bytes fit."""
        gather = self.gather
        excess = self.used + size - gather.room
        if excess <= 0:
            return
        self._see_ahead(self.wanted[self.k])
        candidates: list[tuple[float, int]] = []
        for i in members(self.held & ~pinned):
            if not self.useful >> i & 1:
                candidates.append((-1.0, i))
            elif gather.sizes[i] and not self.fixed >> i & 1:
                candidates.append((self._price(i), i))
        for _, i in sorted(candidates):
            if excess <= 0:
                break
            self.held &= ~(1 << i)
            self.used -= gather.sizes[i]
            excess -= gather.sizes[i]

    def _price(self, i: int) -> float:
        """Time that dropping a value adds to what must run again, by its bytes and how long it lies idle."""
        gather = self.gather
        time, stack, seen, looked = 0.0, 1 << i, 1 << i, 0
        while stack:
            j = stack.bit_length() - 1
            stack ^= 1 << j
            o = self.maker[j]
            if o not in self.rerun:
                time += self.problem.times[o]
                stack |= gather.reads[o] & ~self.held & ~seen
                seen |= gather.reads[o]
                looked += 1
        charge(SETTINGS.greedy_look * looked)
        needs = self.needs[i]
        at = bisect_left(needs, self.k)
        idle = (needs[at] if at < len(needs) else self.view.count) - self.k
        return (time + 1e-6) / (gather.sizes[i] * (idle + 1.0))
