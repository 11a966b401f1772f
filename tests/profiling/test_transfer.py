"""Transfers are measured through the swap space."""

import torch

from lowtide.profiling.profile import measure_transfer


def test_the_disk_is_really_used() -> None:
    tier, samples = measure_transfer(torch.device("cpu"), 2**20)
    assert tier.startswith("disk")
    assert [sample.bytes for sample in samples] == [2**16, 2**20]
    assert all(sample.out_ms > 0 and sample.in_ms > 0 for sample in samples)
