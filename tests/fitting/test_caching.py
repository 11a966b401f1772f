"""The caching allocator, by hand: sizes of segments, splitting, joining, streams, and running out."""

import pytest

from lowtide.fitting.caching import Cache, OutOfMemory

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "segment"), [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB, 10), (11 * MIB, 12)]
)
def test_a_segment_has_one_of_the_allocators_sizes(size: int, segment: int) -> None:
    cache = Cache()
    cache.take(size)
    assert cache.reserved == segment * MIB


def test_small_ones_share_a_segment() -> None:
    cache = Cache()
    for _ in range(4):
        cache.take(MIB // 2)
    assert cache.reserved == 2 * MIB
    cache.take(1)
    assert cache.reserved == 4 * MIB


def test_what_is_given_back_is_used_again_and_neighbours_join() -> None:
    cache = Cache()
    first, second = cache.take(8 * MIB), cache.take(8 * MIB)
    assert cache.reserved == 20 * MIB
    cache.give(first)
    cache.give(second)
    cache.take(20 * MIB)
    assert cache.reserved == 20 * MIB


def test_a_hole_that_is_too_small_stays_a_hole() -> None:
    cache = Cache()
    low = cache.take(40 * MIB)
    cache.give(low)
    cache.take(42 * MIB)
    assert cache.reserved == 82 * MIB


def test_the_smallest_that_is_large_enough_is_cut() -> None:
    cache = Cache()
    large, small = cache.take(100 * MIB), cache.take(30 * MIB)
    cache.give(large)
    cache.give(small)
    cache.take(25 * MIB)
    cache.take(100 * MIB)
    assert cache.reserved == 130 * MIB


def test_another_stream_does_not_get_it() -> None:
    cache = Cache()
    cache.give(cache.take(40 * MIB, "gather"))
    cache.take(40 * MIB)
    assert cache.reserved == 80 * MIB


def test_at_the_limit_unused_segments_go_back_before_it_fails() -> None:
    cache = Cache(limit=100 * MIB)
    cache.give(cache.take(60 * MIB, "gather"))
    held = cache.take(80 * MIB)
    assert cache.reserved == 80 * MIB
    with pytest.raises(OutOfMemory):
        cache.take(40 * MIB)
    cache.give(held)
