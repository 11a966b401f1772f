"""A beam of ways through the program, each with what it holds: for graphs that are no chain, and where little fits.

A way is at a position of the program and holds some values. To go on it makes again what the next op lacks, by the
cheapest path of sets that fits (`gather.py`), and drops what it can do without to make room. What every way must still
run again is known: the ops of values that the rest of the program needs and it does not hold, and those of what they
need in turn. Their time is a bound on what is to come, so ways are ranked by what they have spent plus this; a value is
dropped where that adds least to it for its bytes and for how long it would lie idle.
"""

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.gather import Gather, Key, members
from lowtide.planning.optimal.work import STEP, charge, meter

CHEAP, ANY = 200, 3000
"""Sets that are looked at for the cheapest path, and then for any."""
LONGEST = 100
"""Longest order, in lengths of the program."""
LOOK = 0.6 * STEP
"""What looking at one op takes."""

Trail = tuple["Trail | None", tuple[int, ...]]
"""The ops of a way, newest last, linked to those before."""


@dataclass(frozen=True)
class Taste:
    """How a way chooses what to drop: `idle` weighs how long a value lies idle, `noise` is the spread of a factor."""

    idle: float
    noise: float


TASTES = (Taste(1.0, 0.0), Taste(0.5, 0.0), Taste(1.0, 0.6), Taste(0.3, 0.8))


@dataclass(frozen=True)
class Way:
    """What is held before a position of the program, as a bit set, and what that has cost."""

    held: int
    used: int
    spent: float
    ahead: float
    """Time of what must be run again whatever happens."""
    steps: int
    trail: Trail | None

    @property
    def rank(self) -> float:
        """No continuation takes less extra time."""
        return self.spent + self.ahead


class Beam:
    """Searches for an order within the budget; optional ops are not used."""

    def __init__(self, facts: Facts, budget: int, seed: int, *, until: float = 0.0) -> None:
        """`until`: the work left at which it gives up."""
        problem = facts.problem
        self.facts, self.problem, self.chance = facts, problem, random.Random(seed)
        self.until = until
        self.gather = gather = Gather(facts, budget - problem.resident_bytes, certify=False)
        self.maker = [makers[0] if makers else -1 for makers in gather.makers]
        once = (s for s, k in facts.born.items() if problem.ops[problem.program[k]].once)
        self.fixed = gather.mask(once) | gather.mask(problem.kept)
        """Never dropped: what cannot be made again, and what is wanted at the end, where all of it must fit anyway."""
        self.needs = [facts.needs.get(s, []) for s in gather.storages]
        self.wanted = self._wanted()

    def _wanted(self) -> list[int]:
        """Per position what the program from it on reads of what was written before it."""
        gather = self.gather
        wanted = [0] * (self.facts.count + 1)
        wanted[-1] = gather.mask(self.problem.kept)
        for k in range(self.facts.count - 1, -1, -1):
            o = self.problem.program[k]
            wanted[k] = (wanted[k + 1] & ~gather.writes[o]) | gather.reads[o]
        return wanted

    def search(self, width: int) -> list[int] | None:
        """The order of the best way, at most `width` ways going on from each position; None where all fail."""
        ways = [Way(0, 0, 0.0, 0.0, 0, None)]
        for k in range(self.facts.count + 1):
            found: dict[int, Way] = {}
            for way in ways:
                if self.late():
                    return None
                for after in self._onward(k, way, width):
                    known = found.get(after.held)
                    if known is None or after.rank < known.rank:
                        found[after.held] = after
            ways = sorted(found.values(), key=lambda way: (way.rank, way.held))[:width]
            if not ways:
                return None
        return _ops(ways[0].trail)

    def late(self) -> bool:
        """Has it had its work?"""
        return meter().left() <= self.until

    def _onward(self, k: int, way: Way, width: int) -> Iterator[Way]:
        """A way at position k gone on by one op, in a few tastes; behind the last op what must be kept is made."""
        for taste in TASTES if width > 1 else TASTES[:1]:
            walk = Walk(self, k, way, taste)
            if walk.advance():
                yield walk.way()
            if not walk.chose:
                break

    def again(self, missing: int, held: int) -> set[int]:
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
        return found

    def time(self, ops: set[int]) -> float:
        """Time of a set of ops."""
        return sum(self.problem.times[o] for o in ops)


class Walk:
    """One way going on by one op of the program."""

    def __init__(self, beam: Beam, k: int, way: Way, taste: Taste) -> None:
        self.beam, self.k, self.before, self.taste = beam, k, way, taste
        self.held, self.used, self.spent = way.held, way.used, way.spent
        self.ops: list[int] = []
        self.chose = False
        """Was there a choice of what to drop?"""
        charge(LOOK)
        self.again: set[int] = set()
        self.useful = 0

    def way(self) -> Way:
        """Where it has come to, without what is of no more use."""
        beam = self.beam
        self._see_ahead(beam.wanted[min(self.k + 1, beam.facts.count)])
        held = self.held & self.useful
        steps = self.before.steps + len(self.ops)
        return Way(
            held,
            beam.gather.bytes(held),
            self.spent,
            beam.time(self.again),
            steps,
            (self.before.trail, tuple(self.ops)),
        )

    def _see_ahead(self, wanted: int) -> None:
        """What must run again, with what is held now, and what is of use for that or for the program."""
        self.again = self.beam.again(wanted, self.held)
        charge(LOOK * len(self.again))
        self.useful = wanted
        for o in self.again:
            self.useful |= self.beam.gather.reads[o]

    def advance(self) -> bool:
        """Make what the op at this position lacks and run it; False where no path is found that fits."""
        beam, gather, k = self.beam, self.beam.gather, self.k
        last = k == beam.facts.count
        goal = beam.wanted[k] if last else gather.reads[beam.problem.program[k]]
        if goal & ~self.held:
            path = self._path(goal)
            if path is None or self.before.steps + len(path) > LONGEST * beam.facts.count:
                return False
            for o, after in path:
                if beam.late():  # a path may be thousands of runs long
                    return False
                self._run(o, after)
                self.spent += beam.problem.times[o]
        if not last:
            o = beam.problem.program[k]
            self._run(o, goal)
        return self.used <= gather.room

    def _path(self, goal: int) -> list[tuple[int, int]] | None:
        beam, gather = self.beam, self.beam.gather
        aside = self.held & beam.fixed & beam.wanted[self.k]

        def cheap(held: int, spent: float) -> Key:
            ops = beam.again(held, self.held)
            charge(LOOK * len(ops))
            return spent + beam.time(ops), held

        there = self.held & ~aside
        path, certain = gather.trace(goal, most=CHEAP, key=cheap, there=there, again=True, aside=aside)
        if path is None and not certain:
            path, _ = gather.trace(goal, most=ANY, there=there, again=True, aside=aside)
        return path

    def _run(self, o: int, after: int) -> None:
        """Run an op whose inputs are there, dropping what is not needed `after` it for the sake of room."""
        gather = self.beam.gather
        fresh = gather.bytes(gather.writes[o] & ~self.held)
        self._make_room(fresh + self.beam.problem.workspaces[o], after | gather.reads[o] | gather.writes[o])
        self.ops.append(o)
        self.held |= gather.writes[o]
        self.used += fresh
        charge(3 * LOOK)

    def _make_room(self, size: int, pinned: int) -> None:
        """Drop what costs least until `size` more bytes fit."""
        beam, gather = self.beam, self.beam.gather
        excess = self.used + size - gather.room
        if excess <= 0:
            return
        k = self.k
        wanted = beam.wanted[k]
        self._see_ahead(wanted)
        candidates: list[tuple[float, int]] = []
        for i in members(self.held & ~pinned):
            if not self.useful >> i & 1:
                candidates.append((-1.0, i))
            elif gather.sizes[i] and not beam.fixed >> i & 1:
                candidates.append((self._price(i), i))
        candidates.sort()
        for price, i in candidates:
            if excess <= 0:
                break
            self.chose = self.chose or price >= 0
            self.held &= ~(1 << i)
            self.used -= gather.sizes[i]
            excess -= gather.sizes[i]

    def _price(self, i: int) -> float:
        """Time that dropping a value adds to what must run again, by its bytes and how long it lies idle."""
        beam, gather, taste = self.beam, self.beam.gather, self.taste
        time, stack, seen, looked = 0.0, 1 << i, 1 << i, 0
        while stack:
            j = stack.bit_length() - 1
            stack ^= 1 << j
            o = beam.maker[j]
            if o not in self.again:
                time += beam.problem.times[o]
                stack |= gather.reads[o] & ~self.held & ~seen
                seen |= gather.reads[o]
                looked += 1
        charge(LOOK * looked)
        needs = beam.needs[i]
        at = bisect_left(needs, self.k)
        idle = (needs[at] if at < len(needs) else beam.facts.count) - self.k
        price = (time + 1e-6) / (gather.sizes[i] * (idle + 1.0) ** taste.idle)
        return float(price * beam.chance.uniform(1 - taste.noise, 1 + taste.noise)) if taste.noise else price


def _ops(trail: Trail | None) -> list[int]:
    parts: list[tuple[int, ...]] = []
    while trail is not None:
        parts.append(trail[1])
        trail = trail[0]
    return [o for part in reversed(parts) for o in part]
