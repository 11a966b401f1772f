"""The best that a search has: the fastest order within the budget, the least peak seen, the bound."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lowtide.planning.optimal.decision import Decision, build
from lowtide.planning.optimal.instants import byte_price
from lowtide.planning.optimal.lifetimes import live_bytes
from lowtide.planning.optimal.packing import packed_by, unpacked, with_packing
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.prune import prune
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import allowance

if TYPE_CHECKING:
    from lowtide.planning.optimal.spine.bound import SpineBound


class Impossible(Exception):
    """No schedule stays within the budget: that is proven."""


@dataclass(frozen=True)
class Plain:
    """A problem with its packing decided and taken out; orders go in and come back with it."""

    whole: ProgramView
    packed: frozenset[int]

    @cached_property
    def view(self) -> ProgramView:
        """Of the problem without optional ops."""
        problem = self.whole.problem
        return ProgramView(unpacked(problem, self.packed)) if len(problem.program) < len(problem.ops) else self.whole

    def stripped(self, order: Sequence[int]) -> list[int]:
        """An order without its optional runs, in terms of the plain problem."""
        position = self.whole.position
        plain = self.view.problem.program
        return [plain[position[o]] for o in order if position[o] >= 0]

    def back(self, order: Sequence[int]) -> list[int]:
        """An order of the plain problem in terms of the whole one, packing put back."""
        position, program = self.view.position, self.whole.problem.program
        return with_packing(self.whole.problem, self.packed, [program[position[o]] for o in order])


@dataclass
class Incumbent:
    """Takes orders and decisions from anyone; makes them fit and keeps the best."""

    view: ProgramView
    budget: int
    seed: int
    progress: Callable[[str], None]
    without: frozenset[str] = frozenset()
    """Stages to leave out."""
    ranked: list[tuple[float, int]] = field(default_factory=list)
    """Instants by how much each of them alone asks for."""
    near: bool = True
    """Is the order of one instant near the budget, so that a few more are likely to help?"""
    is_chain: bool = False
    """Did nested blocks find a better plan?"""
    spine: "SpineBound | None" = None
    """The links of forward, where they were worked out."""
    order: list[int] | None = None
    extra: float = math.inf
    """Extra time of the best order."""
    bound: float = 0.0
    """No order within the budget has less extra time."""
    walks: int = 0
    """How often ruin and recreate was begun: each time another way."""
    floor: int = 0
    floor_order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.floor = int(self.view.live.max())
        self.floor_order = list(self.view.problem.program)

    @property
    def closed(self) -> bool:
        """Is the best order proven to be the best there is?"""
        return self.extra <= self.bound + SETTINGS.met_again * SETTINGS.met * self.view.problem.base_time

    def above(self, share: float) -> bool:
        """Is the best order further above the bound than a share of the program's time?"""
        return self.extra - self.bound > share * self.view.problem.base_time

    @property
    def far(self) -> bool:
        """Is the best order so far from the bound that another kind of order should be tried?"""
        return self.above(SETTINGS.wide)

    @property
    def is_wide(self) -> bool:
        """The same, sooner where nothing can be packed: stages weigh packing, walks do not.

        Asked where the program is no chain of blocks.
        """
        plain = len(self.view.problem.program) == len(self.view.problem.ops)
        return self.far or (plain and self.above(0 if self.is_small else SETTINGS.apart))

    @property
    def is_small(self) -> bool:
        """Has the program few ops?"""
        return self.view.count <= SETTINGS.small

    @property
    def is_medium(self) -> bool:
        """Has it so few that several instants pay?"""
        return self.view.count <= SETTINGS.large

    @property
    def top(self) -> int:
        """The instant at which bytes are scarcest."""
        return self.ranked[0][1]

    @cached_property
    def price(self) -> float:
        """What a byte costs there, in time."""
        return byte_price(self.view, self.budget, self.top)

    def walk_seed(self) -> int:
        """Another one for every walk."""
        self.walks += 1
        return self.seed + SETTINGS.seeds * (self.walks - 1)

    @property
    def is_long(self) -> bool:
        """Is the best order so long that working on it would take all the work?"""
        return self.order is not None and len(self.order) >= SETTINGS.long * self.view.count

    @property
    def whole(self) -> float:
        """All the work of the search."""
        return allowance().whole

    def left(self) -> float:
        """Work that the part that is running may still do."""
        return allowance().left()

    def plain(self) -> "Plain | None":
        """The problem without optional ops, for parts that know none: what the best order packs waits packed.

        While there is no order, all that can be packed does. None where the order uses optional ops in another way.
        """
        problem = self.view.problem
        able = self.view.pairs
        if self.order is None:
            return Plain(self.view, frozenset(able))
        packed = packed_by(problem, self.order)
        known = {o for s in packed & able.keys() for o in able[s]}
        used = {o for o in self.order if problem.ops[o].optional}
        return Plain(self.view, packed) if used <= known else None

    def over(self, order: Sequence[int]) -> int:
        """Bytes by which an order exceeds the budget."""
        peak = int(live_bytes(self.view.problem, order).max())
        if peak < self.floor:
            self.floor, self.floor_order = peak, list(order)
        return peak - self.budget

    def offer_decision(self, decision: Decision) -> list[int] | None:
        """Build, make fit and offer; the order as it was built, None where it cannot be."""
        order = build(self.view, decision)
        if order is not None:
            self.offer(order)
        return order

    def fitted(
        self, order: Sequence[int], view: ProgramView | None = None, *, prune_it: bool = True
    ) -> list[int] | None:
        """The order repaired where it is over the budget, and pruned; None where repair does not succeed.

        With `view` of another form of the problem, as an order of that.
        """
        fitting = list(order)
        own = view is None
        view = self.view if view is None else view
        over = self.over(order) if own else int(live_bytes(view.problem, order).max()) - self.budget
        if over > 0:
            far = self.order is not None and over > SETTINGS.repair_far * (self.budget - view.problem.resident_bytes)
            repaired = repair(
                view, order, self.budget, work=SETTINGS.repair_changes_far if far else SETTINGS.repair_changes
            )
            if repaired is None:
                return None
            fitting = repaired
            if own:
                self.over(fitting)
        return prune(view, fitting, self.budget, seed=self.seed) if prune_it else fitting

    def extra_of(self, order: Sequence[int]) -> float:
        """Time of an order beyond the program's."""
        times = self.view.problem.times
        return max(0.0, sum(times[o] for o in order) - self.view.problem.base_time)

    def offer(self, order: Sequence[int], *, prune_it: bool = True) -> bool:
        """Make it fit, and keep it where it is the best so far."""
        pruned = self.fitted(order, prune_it=prune_it)
        if pruned is None or self.extra_of(pruned) >= self.extra:
            return False
        self.over(pruned)
        self.order, self.extra = pruned, self.extra_of(pruned)
        self.progress(f"the best so far takes {100 * self.extra / (self.view.problem.base_time or 1):.2f} % more time")
        return True

    def raise_bound(self, bound: float) -> None:
        """A bound on extra time that someone certified."""
        self.bound = max(self.bound, bound)
