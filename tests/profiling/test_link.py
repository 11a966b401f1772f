"""The sizes at which collectives are timed; what they are for is tested on two ranks in tests/parallel."""

import pytest

from lowtide.profiling.link import APART, SMALLEST, _sizes


@pytest.mark.parametrize("largest", [1, SMALLEST, SMALLEST + 1, SMALLEST * APART + 1, 25_000_000])
def test_sizes_rise_to_the_largest(largest: int) -> None:
    sizes = _sizes(largest)
    assert sizes[-1] == largest
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= 5
