"""The best that a search has: the fastest order within the budget, the least peak seen, the bound."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lowtide.planning.optimal.construct import build
from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.facts import Facts, live_bytes
from lowtide.planning.optimal.instants import SLACK
from lowtide.planning.optimal.packing import packed_by, packings, unpacked, with_packing
from lowtide.planning.optimal.prune import prune
from lowtide.planning.optimal.repair import WORK, repair
from lowtide.planning.optimal.work import Meter

WIDE = 0.03
"""Gap, as a share of the program's time, that counts as far."""
LONG = 4
"""Lengths of the program from which on an order is taken as it is: pruning it would take all the work."""
FAR = 0.3
"""Share of the room by which an order may exceed it and still be worth a long repair."""


@dataclass(frozen=True)
class Plain:
    """A problem with its packing decided and taken out; orders go in and come back with it."""

    whole: Facts
    packed: frozenset[int]

    @cached_property
    def facts(self) -> Facts:
        """Of the problem without optional ops."""
        problem = self.whole.problem
        return Facts(unpacked(problem, self.packed).problem) if len(problem.program) < len(problem.ops) else self.whole

    def stripped(self, order: Sequence[int]) -> list[int]:
        """An order without its optional runs, in terms of the plain problem."""
        position = self.whole.position
        plain = self.facts.problem.program
        return [plain[position[o]] for o in order if position[o] >= 0]

    def back(self, order: Sequence[int]) -> list[int]:
        """An order of the plain problem in terms of the whole one, packing put back."""
        position, program = self.facts.position, self.whole.problem.program
        return with_packing(self.whole.problem, self.packed, [program[position[o]] for o in order])


@dataclass
class Incumbent:
    """Takes orders and decisions from anyone; makes them fit and keeps the best."""

    facts: Facts
    budget: int
    meter: Meter
    seed: int
    progress: Callable[[str], None]
    order: list[int] | None = None
    extra: float = math.inf
    """Extra time of the best order."""
    bound: float = 0.0
    """No order within the budget has less extra time."""
    rounds: int = 0
    """How often improvement was begun: each time with other ranges."""
    walks: int = 0
    """How often ruin and recreate was begun: each time another way."""
    floor: int = 0
    floor_order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.whole = self.meter.whole
        self.floor = int(self.facts.live.max())
        self.floor_order = list(self.facts.problem.program)

    @property
    def closed(self) -> bool:
        """Is the best order proven to be the best there is?"""
        return self.extra <= self.bound + 1.01 * SLACK * self.facts.problem.base_time

    def above(self, share: float) -> bool:
        """Is the best order further above the bound than a share of the program's time?"""
        return self.extra - self.bound > share * self.facts.problem.base_time

    @property
    def far(self) -> bool:
        """Is the best order so far from the bound that another kind of order should be tried?"""
        return self.above(WIDE)

    @property
    def is_long(self) -> bool:
        """Is the best order so long that working on it would take all the work?"""
        return self.order is not None and len(self.order) >= LONG * self.facts.count

    def left(self) -> float:
        """Work that may still be done."""
        return self.meter.left()

    def plain(self) -> "Plain":
        """The problem without optional ops, for parts that know none: what the best order packs waits packed.

        While there is no order, all that can be packed does.
        """
        problem = self.facts.problem
        packed = packings(problem).keys() if self.order is None else packed_by(problem, self.order)
        return Plain(self.facts, frozenset(packed))

    def over(self, order: Sequence[int]) -> int:
        """Bytes by which an order exceeds the budget."""
        peak = int(live_bytes(self.facts.problem, order).max())
        if peak < self.floor:
            self.floor, self.floor_order = peak, list(order)
        return peak - self.budget

    def offer_decision(self, decision: Decision, source: str) -> list[int] | None:
        """Build, make fit and offer; the order as it was built, None where it cannot be."""
        order = build(self.facts, decision)
        if order is not None:
            self.offer(order, source)
        return order

    def fitted(self, order: Sequence[int], facts: Facts | None = None, *, prunings: int = 3) -> list[int] | None:
        """The order repaired where it is over the budget, and pruned; None where repair does not succeed.

        With `facts` of another form of the problem, as an order of that.
        """
        fitting = list(order)
        own = facts is None
        facts = self.facts if facts is None else facts
        over = self.over(order) if own else int(live_bytes(facts.problem, order).max()) - self.budget
        if over > 0:
            far = self.order is not None and over > FAR * (self.budget - facts.problem.resident_bytes)
            repaired = repair(facts, order, self.budget, work=WORK // 10 if far else WORK)
            if repaired is None:
                return None
            fitting = repaired
            if own:
                self.over(fitting)
        return prune(facts, fitting, self.budget, seed=self.seed, rounds=prunings)

    def extra_of(self, order: Sequence[int]) -> float:
        """Time of an order beyond the program's."""
        times = self.facts.problem.times
        return max(0.0, sum(times[o] for o in order) - self.facts.problem.base_time)

    def offer(self, order: Sequence[int], source: str, *, prunings: int = 3) -> bool:
        """Make it fit, and keep it where it is the best so far."""
        pruned = self.fitted(order, prunings=prunings)
        if pruned is None or self.extra_of(pruned) >= self.extra:
            return False
        self.over(pruned)
        self.order, self.extra = pruned, self.extra_of(pruned)
        self.progress(f"{100 * self.extra / (self.facts.problem.base_time or 1):.3f} % by {source}")
        return True

    def raise_bound(self, bound: float) -> None:
        """A bound on extra time that someone certified."""
        self.bound = max(self.bound, bound)
