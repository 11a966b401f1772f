"""The process as the operating system counts it."""

import torch

from lowtide.device.process import forget_high_water, high_water_bytes, page_faults, resident_bytes, warm_memory

SIZE = 2**28


def faults_of_a_step() -> int:
    before = page_faults()
    torch.ones(SIZE // 4).add_(1)
    return page_faults() - before


def test_the_high_water_mark_forgets() -> None:
    forget_high_water()
    torch.ones(SIZE // 4).add_(1)
    high = high_water_bytes()
    assert high > resident_bytes() + SIZE // 2
    forget_high_water()
    assert high_water_bytes() < high - SIZE // 2


def test_warm_memory_has_no_page_faults_and_goes_back_afterwards() -> None:
    cold = [faults_of_a_step() for _ in range(3)]
    with warm_memory():
        warm = [faults_of_a_step() for _ in range(6)]
        kept = resident_bytes()
    assert min(cold) > 100  # huge pages or not
    assert min(warm) < 20  # which step is the first without depends on what lies in the heap
    assert resident_bytes() < kept - SIZE // 2
    assert faults_of_a_step() > 100
