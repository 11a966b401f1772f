"""The bound along the spine, in ever finer cells; and the decision that has it, which is no plan yet but near one."""

from collections.abc import Callable, Iterator

from lowtide.planning.optimal.decision import Decision
from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.spine.chain import Chain, LinkChoices, Step
from lowtide.planning.optimal.spine.choices import Tangled
from lowtide.planning.optimal.spine.links import Spine

CELLS = (120, 240, 480)
"""Cells for the bytes of the room, ever finer."""
NEAR = 0.9
"""Share of the bound by other means that coarse cells must reach for finer ones to be tried."""
FEWEST, MOST = 2, 200
"""Links without which there is nothing to group, and beyond which too much is lost from link to link."""
CHOICES = 0.3
"""Share of the work that the choices of all links may take."""


def spine_bound(facts: Facts, budget: int, top: int, *, known: float, left: Callable[[], float]) -> float:
    """A bound on extra time, at least `known`: just that where forward has no spine, or its ops are too tangled."""
    spine = Spine(facts, top, budget - facts.problem.resident_bytes)
    links = choices_of(spine, left)
    bound = known
    for cells in CELLS if links else ():
        before = left()
        value = Chain(links, spine.room, cells).least
        bound = max(bound, value)
        if value < NEAR * known or 3 * (before - left()) > left():
            break
    return bound


def spine_decisions(
    facts: Facts, budget: int, top: int, percents: tuple[int, ...], left: Callable[[], float]
) -> Iterator[Decision]:
    """What the bound stores at the start of each group, for parts of the room: the rest is for what it leaves out."""
    spine = Spine(facts, top, budget - facts.problem.resident_bytes)
    links = choices_of(spine, left)
    for percent in percents if links else ():
        steps = Chain(links, spine.room * percent // 100, CELLS[1]).steps()
        if steps:
            yield _decision(spine, links, steps)


def choices_of(spine: Spine, left: Callable[[], float]) -> list[LinkChoices]:
    """What each link can do; nothing where there is no spine, or its ops are too tangled."""
    if not FEWEST <= len(spine.links) <= MOST:
        return []
    links: list[LinkChoices] = []
    enough = (1 - CHOICES) * left()
    for link in spine.links:
        try:
            links.append(LinkChoices(spine, link))
        except Tangled:
            return []
        if left() < enough:
            return []
    return links


def _decision(spine: Spine, links: list[LinkChoices], steps: list[Step]) -> Decision:
    facts, stored = spine.facts, dict[int, frozenset[int]]()
    above, group, group_above = set[int](), set[int](), set[int]()
    for link, choices, step in zip(spine.links, links, steps, strict=True):
        choice = choices.choices[step.topmost, step.late]
        group |= choice.named(step.cost.lie_at_start)
        group_above |= choice.named(step.cost.lie_above)
        if step.topmost:
            waiting = {
                s
                for s, k in facts.born.items()
                if (k >= spine.top or not spine.bytes(s)) and k < link.start <= facts.needs.get(s, [k])[-1]
            }
            stored[link.start] = frozenset(above | group | waiting)
            above |= group_above
            group, group_above = set(), set()
    instants = tuple(sorted(stored))
    return Decision(instants, tuple(stored[j] for j in instants), tuple(frozenset() for _ in instants))
