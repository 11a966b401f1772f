"""What copies take from compute is measured through real copies."""

from pathlib import Path

import pytest
import torch

from lowtide.device.swap import measure_slowdown
from lowtide.device.swap.disk import DiskSpace
from tests.device.swap.files import Call, FaultyFile


@pytest.mark.slow
def test_copies_are_made_while_compute_is_timed_and_nothing_is_left(tmp_path: Path) -> None:
    file = FaultyFile(tmp_path)
    counted: list[int] = []

    def count(call: Call, data: memoryview, offset: int) -> int:
        counted.append(len(data))
        return call(data, offset)

    file.writes = [count] * 100
    space = DiskSpace(file)
    before = torch.get_rng_state()
    assert measure_slowdown(space) >= 0
    assert torch.equal(torch.get_rng_state(), before)
    assert len(counted) >= 40
    assert space.waited.settle_s == space.waited.arrive_s == 0
    space.settle(space.offload(torch.ones(2**20)))
    space.close()
