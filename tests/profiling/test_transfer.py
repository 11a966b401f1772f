"""Transfers are measured, and read between the measured sizes."""

import pytest
import torch

from lowtide.profiling.transfer import measure_transfer, transfer_ms
from lowtide.records.profile import TransferSample

SAMPLES = (TransferSample(100, 1.0, 2.0), TransferSample(200, 5.0, 4.0))


@pytest.mark.parametrize(("size", "expected"), [(10, 2.0), (100, 2.0), (150, 3.5), (200, 5.0), (400, 10.0)])
def test_the_slower_direction_counts(size: int, expected: float) -> None:
    assert transfer_ms(SAMPLES, size) == pytest.approx(expected)


def test_the_disk_is_really_used() -> None:
    tier, samples = measure_transfer(torch.device("cpu"), 2**20)
    assert tier.startswith("disk")
    assert [sample.bytes for sample in samples] == [2**16, 2**20]
    assert all(sample.out_ms > 0 and sample.in_ms > 0 for sample in samples)
