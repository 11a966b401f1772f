"""The process as the operating system counts it."""

import subprocess
import sys

import torch

from lowtide.device.process import forget_high_water, high_water_bytes, page_faults, resident_bytes

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


WARM = """
from tests.device.test_process import SIZE, faults_of_a_step
from lowtide.device.process import resident_bytes, warm_memory

cold = [faults_of_a_step() for _ in range(3)]
with warm_memory():
    warm = [faults_of_a_step() for _ in range(6)]
    kept = resident_bytes()
assert min(cold) > 100, cold  # huge pages or not
assert min(warm) < 20, warm  # which step is the first without depends on what lies in the heap
assert resident_bytes() < kept - SIZE // 2
assert faults_of_a_step() > 100
"""


def test_warm_memory_has_no_page_faults_and_goes_back_afterwards() -> None:
    """In a process of its own, whose heap has no history."""
    subprocess.run([sys.executable, "-c", WARM], check=True)
