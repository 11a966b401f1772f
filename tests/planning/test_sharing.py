"""Graphs that share a budget, on paper."""

from lowtide.planning.sharing import Event, Limits, Point, apart, choose, limits_of, lowest, peak_of, weights_of, within

WIDE, NARROW = Point(forward=60, saved=50, backward=10, time=10.0), Point(forward=40, saved=10, backward=20, time=14.0)
THIN = Point(forward=30, saved=5, backward=20, time=30.0)
EVENTS = [
    Event(0, True, 100, ()),
    Event(None, False, 105, (0,), 3),
    Event(1, True, 105, (0,)),
    Event(1, False, 107, (0, 1)),
    Event(0, False, 120, (0,)),
]
"""One graph inside of another."""


def test_peaks_count_what_open_graphs_have_saved() -> None:
    assert [event.peak([WIDE, NARROW]) for event in EVENTS] == [160, 158, 195, 187, 180]
    assert peak_of(EVENTS, [WIDE, NARROW]) == 195


def test_limits_are_what_the_others_leave() -> None:
    limits = limits_of(0, EVENTS, [WIDE, NARROW], 200)
    assert limits == Limits(forward=100, saved=55, backward=80)
    inner = limits_of(1, EVENTS, [WIDE, NARROW], 200)
    assert (inner.forward, inner.backward) == (45, 43)


def test_one_price_chooses_the_points() -> None:
    ladder = [WIDE, NARROW, THIN]
    assert choose([ladder, ladder], EVENTS, 1000) == [0, 0]
    found = choose([ladder, ladder], EVENTS, 195)
    assert found is not None
    assert sorted(found) == [0, 1]
    assert choose([ladder, ladder], EVENTS, 160) == [1, 1]
    assert choose([ladder, ladder], EVENTS, 130) is None
    for budget in range(140, 240):
        found = choose([ladder, ladder], EVENTS, budget)
        assert found is None or peak_of(EVENTS, [ladder[k] for k in found]) <= budget


def test_what_is_saved_counts_where_others_run() -> None:
    """Both points of the outer graph rise equally high by themselves; beside the inner one the second takes less."""
    outer = [Point(60, 50, 10, 10.0), Point(60, 20, 40, 12.0)]
    inner = [Point(40, 10, 40, 5.0)]
    assert weights_of(0, [outer, inner], EVENTS) == [207, 180]
    assert choose([outer, inner], EVENTS, 207) == [0, 0]
    assert choose([outer, inner], EVENTS, 180) == [1, 0]
    assert choose([outer, inner], EVENTS, 179) is None


def test_the_lowest_places_are_found_one_graph_at_a_time() -> None:
    """The least weight of each graph by itself is not yet the lowest peak of both."""
    ladder = [WIDE, NARROW, THIN]
    for events in (EVENTS, [*EVENTS, Event(None, False, 110, (0, 1), 40)]):
        found = lowest([ladder, ladder], events)
        heights = [peak_of(events, [ladder[a], ladder[b]]) for a in range(3) for b in range(3)]
        assert peak_of(events, [ladder[k] for k in found]) == min(heights)


def test_graphs_that_never_meet_are_planned_apart() -> None:
    later = [Event(2, True, 100, ()), Event(2, False, 110, (2,)), Event(3, True, 100, ()), Event(3, False, 110, (3,))]
    events = [*EVENTS, *later]
    assert apart(4, events) == [(0, 1), (2,), (3,)]
    assert within((0, 1), events) == EVENTS
    assert within((3,), events) == [Event(0, True, 100, ()), Event(0, False, 110, (0,))]
