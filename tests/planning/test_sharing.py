"""Graphs that share a budget, on paper."""

from lowtide.planning.sharing import Event, Limits, Point, choose, limits_of, peak_of

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
