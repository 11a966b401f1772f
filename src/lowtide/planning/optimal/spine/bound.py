"""The bound along the spine, in ever finer cells; and the decision that has it, which is no plan yet but near one."""

from collections.abc import Callable
from functools import cached_property

from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.spine.chain import Chain, LinkChoices, Step
from lowtide.planning.optimal.spine.choices import Tangled
from lowtide.planning.optimal.spine.links import Spine


class SpineBound:
    """The spine before `top` and what its links can do, worked out once for the bound and for what it stores."""

    def __init__(self, view: ProgramView, budget: int, top: int, *, left: Callable[[], float]) -> None:
        self.spine = Spine(view, top, budget - view.problem.resident_bytes)
        self.left = left

    @cached_property
    def links(self) -> list[LinkChoices]:
        """What each link can do; nothing where there is no spine, or its ops are too tangled."""
        fewest, most = SETTINGS.links
        longest = max(len(link.ops) for link in self.spine.links)
        if not fewest <= len(self.spine.links) <= most or longest > SETTINGS.link_ops:
            return []
        links: list[LinkChoices] = []
        enough = (1 - SETTINGS.spine_share) * self.left()
        for link in self.spine.links:
            try:
                links.append(LinkChoices(self.spine, link))
            except Tangled:
                return []
            if self.left() < enough:
                return []
        return links

    def at(self, cells: int, percent: int = 100) -> Chain | None:
        """The links combined in so many cells, in a part of the room; None where there are no links."""
        return Chain(self.links, self.spine.room * percent // 100, cells) if self.links else None

    def decision(self, chain: Chain) -> Decision | None:
        """What the bound stores at the start of each group; None where nothing fits."""
        steps = chain.steps()
        return self._decision(steps) if steps else None

    def _decision(self, steps: list[Step]) -> Decision:
        spine, view, stored = self.spine, self.spine.view, dict[int, frozenset[int]]()
        above, group, group_above = set[int](), set[int](), set[int]()
        for link, choices, step in zip(spine.links, self.links, steps, strict=True):
            choice = choices.choices[step.topmost, step.late]
            group |= choice.named(step.cost.lie_at_start)
            group_above |= choice.named(step.cost.lie_above)
            if step.topmost:
                waiting = {
                    s
                    for s, k in view.born.items()
                    if (k >= spine.top or not spine.bytes(s)) and k < link.start <= view.last[s]
                }
                stored[link.start] = frozenset(above | group | waiting)
                above |= group_above
                group, group_above = set(), set()
        instants = tuple(sorted(stored))
        return Decision(instants, tuple(stored[j] for j in instants), tuple(frozenset() for _ in instants))
