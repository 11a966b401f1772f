"""Several graphs that share one budget: what each of them may take, given the others.

A training loop calls graphs in halves, and while one runs, others hold what they have saved. Each call is an `Event`
with what it found on the device; each plan of a graph is a `Point`: how far its halves rise, what it saves, its time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Point:
    """One plan of a graph as the others see it, in bytes and milliseconds."""

    forward: int
    """The most that forward takes above what was there before it."""
    saved: int
    """What forward leaves for backward, beside its outputs."""
    backward: int
    """The most that backward takes above what was there before it."""
    time: float


@dataclass(frozen=True, slots=True)
class Event:
    """A half of a graph that ran, or what ran between two of them."""

    graph: int | None
    """None between them."""
    is_forward: bool
    before: int
    """Device bytes before it, without what the planned graphs had saved."""
    open: tuple[int, ...]
    """The graphs whose forward had run and whose backward had not ended, each as often as that is so."""
    rise: int = 0
    """Of what ran between: the most that it took above what was there before it."""

    @property
    def is_nested(self) -> bool:
        """Was the graph itself open beside this call?"""
        return self.graph is not None and self.open.count(self.graph) > (not self.is_forward)

    def held(self, chosen: Sequence[Point]) -> int:
        """What the open graphs have saved."""
        return sum(chosen[g].saved for g in self.open)

    def taken(self, chosen: Sequence[Point]) -> int:
        """The most that it takes itself."""
        if self.graph is None:
            return self.rise
        return chosen[self.graph].forward if self.is_forward else chosen[self.graph].backward

    def peak(self, chosen: Sequence[Point]) -> int:
        """Device bytes at its highest."""
        return self.before + self.held(chosen) + self.taken(chosen)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a graph may take: above what is there before each half, and between them."""

    forward: int
    saved: int
    backward: int
    """With what it has saved."""


def peak_of(events: Sequence[Event], chosen: Sequence[Point]) -> int:
    """The highest of all events."""
    return max(event.peak(chosen) for event in events)


def limits_of(graph: int, events: Sequence[Event], chosen: Sequence[Point], budget: int) -> Limits:
    """What is left for `graph` where the others do as `chosen`."""
    forward, saved, backward = [budget], [budget], [budget]
    for event in events:
        room = budget - event.before - sum(chosen[g].saved for g in event.open if g != graph)
        own = event.open.count(graph)
        if event.graph == graph and event.is_forward:
            forward.append(room - own * chosen[graph].saved)
        elif event.graph == graph:
            backward.append(room - (own - 1) * chosen[graph].saved)
        elif own:
            saved.append((room - event.taken(chosen)) // own)
    return Limits(min(forward), min(saved), min(backward))


def apart(graphs: int, events: Sequence[Event]) -> list[tuple[int, ...]]:
    """The graphs in groups, of which one never holds anything while another one runs: each is planned by itself."""
    groups = [{g} for g in range(graphs)]
    for event in events:
        here = set(event.open) if event.graph is None else {event.graph, *event.open}
        met = [group for group in groups if group & here]
        groups = [group for group in groups if not group & here] + ([set[int]().union(*met)] if met else [])
    return sorted(tuple(sorted(group)) for group in groups)


def within(group: Sequence[int], events: Sequence[Event]) -> list[Event]:
    """The events in which a graph of `group` runs or waits, its graphs named by their place in it."""
    place = {g: k for k, g in enumerate(group)}
    return [
        replace(
            event,
            graph=None if event.graph is None else place[event.graph],
            open=tuple(place[g] for g in event.open),
        )
        for event in events
        if event.graph in place or not place.keys().isdisjoint(event.open)
    ]


def least_of(ladder: Sequence[Point]) -> Point:
    """What is needed at least of each kind of bytes, though perhaps of no two at once."""
    return Point(
        min(point.forward for point in ladder),
        min(point.saved for point in ladder),
        min(point.backward for point in ladder),
        min(point.time for point in ladder),
    )


def weights_of(graph: int, ladders: Sequence[Sequence[Point]], events: Sequence[Event]) -> list[int]:
    """For each point of `graph` the highest event that it takes part in, beside the least of all others: what is saved
    counts where others run."""
    others = [least_of(ladder) for ladder in ladders]
    mine = [event for event in events if event.graph == graph or graph in event.open]
    return [peak_of(mine, [*others[:graph], point, *others[graph + 1 :]]) for point in ladders[graph]]


def choose(ladders: Sequence[Sequence[Point]], events: Sequence[Event], budget: int) -> list[int] | None:
    """For each graph the place of a point on its ladder, so that every event fits; None where none was found.

    One price of a byte for all: each graph takes the point at which its time and its weight at that price are least.
    The lowest price at which everything fits counts. What is then left of the budget goes to those whom it saves most
    time.
    """
    if not all(ladders):
        return None
    scaled = [
        list(zip(weights_of(g, ladders, events), (p.time for p in ladder), strict=True))
        for g, ladder in enumerate(ladders)
    ]
    prices = {0.0}
    for ladder in scaled:
        for weight, time in ladder:
            prices |= {(slower - time) / (weight - less) for less, slower in ladder if weight > less and slower > time}
    for price in [*sorted(prices), float("inf")]:
        chosen = [_at(price, ladder) for ladder in scaled]
        if _fits(ladders, chosen, events, budget):
            return _with_the_rest(ladders, chosen, events, budget)
    chosen = lowest(ladders, events)
    return _with_the_rest(ladders, chosen, events, budget) if _fits(ladders, chosen, events, budget) else None


def lowest(ladders: Sequence[Sequence[Point]], events: Sequence[Event]) -> list[int]:
    """Places with which the highest event is low, and then the next: from the least weights on, one graph at a time
    moves to where that helps most, until none can."""
    chosen = []
    for g, ladder in enumerate(ladders):
        weights = weights_of(g, ladders, events)
        chosen.append(min(range(len(ladder)), key=lambda k: (weights[k], ladder[k].time)))

    def heights(places: Sequence[int]) -> tuple[list[int], float]:
        points = [ladder[k] for ladder, k in zip(ladders, places, strict=True)]
        return sorted((event.peak(points) for event in events), reverse=True), sum(p.time for p in points)

    while True:
        moves = [[*chosen[:g], k, *chosen[g + 1 :]] for g, ladder in enumerate(ladders) for k in range(len(ladder))]
        best = min(moves, key=heights)
        if heights(best) >= heights(chosen):
            return chosen
        chosen = best


def _at(price: float, ladder: Sequence[tuple[int, float]]) -> int:
    def cost(k: int) -> tuple[float, float]:
        weight, time = ladder[k]
        return (weight, time) if price == float("inf") else (time + price * weight, weight)

    return min(range(len(ladder)), key=cost)


def _fits(ladders: Sequence[Sequence[Point]], chosen: Sequence[int], events: Sequence[Event], budget: int) -> bool:
    return peak_of(events, [ladder[k] for ladder, k in zip(ladders, chosen, strict=True)]) <= budget


def _with_the_rest(
    ladders: Sequence[Sequence[Point]], chosen: list[int], events: Sequence[Event], budget: int
) -> list[int]:
    times = [(g, k, ladder[k].time) for g, ladder in enumerate(ladders) for k in range(len(ladder))]
    moves = [(ladders[g][chosen[g]].time - time, g, k) for g, k, time in times]
    for gain, g, k in sorted(moves, reverse=True):
        if gain > 0 and ladders[g][k].time < ladders[g][chosen[g]].time:
            other = [*chosen[:g], k, *chosen[g + 1 :]]
            if _fits(ladders, other, events, budget):
                chosen = other
    return chosen
