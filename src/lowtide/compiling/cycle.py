"""What happened in one cycle of the user's loop: which halves of which graphs ran, and what was on the device."""

from dataclasses import dataclass, field, replace

from lowtide.planning.sharing import Event


@dataclass
class Cycle:
    """What happened in one cycle."""

    start: int
    """Device bytes at its beginning."""
    events: list[Event] = field(default_factory=list)
    peak: int = 0
    """The most device bytes, measured."""
    inside: int = 0
    """The most while a planned graph ran."""
    predicted: int | None = None
    grown: int = 0
    """Bytes outside of the graphs that were new at its beginning, and beside which no plan was found."""
    is_prepared: bool = False
    """Something was measured and planned in it, so its peak says little."""

    @property
    def signature(self) -> tuple[tuple[int, bool], ...]:
        """Which halves ran in which order."""
        return tuple((event.graph, event.is_forward) for event in self.events if event.graph is not None)


def expected(event: Event, growth: int, place: dict[int, int]) -> Event:
    """`event` where more is there from the beginning, with graphs named by their place."""
    return replace(
        event,
        graph=None if event.graph is None else place[event.graph],
        open=tuple(place[number] for number in event.open if number in place),
        before=event.before + max(0, growth),
    )
