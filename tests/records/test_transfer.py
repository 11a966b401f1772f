import pytest

from lowtide.records.transfer import TransferSample, copy_ms

SAMPLES = (TransferSample(100, 1.0, 2.0), TransferSample(200, 5.0, 4.0))


@pytest.mark.parametrize(
    ("size", "out", "back"), [(10, 1.0, 2.0), (100, 1.0, 2.0), (150, 3.0, 3.0), (200, 5.0, 4.0), (400, 10.0, 8.0)]
)
def test_each_direction_between_the_samples_and_beyond_them(size: int, out: float, back: float) -> None:
    assert copy_ms(SAMPLES, size) == pytest.approx((out, back))
