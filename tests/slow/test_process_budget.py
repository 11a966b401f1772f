"""With counts="process" the budget is what the operating system counts."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TRAIN = """
import torch, lowtide
from lowtide.device.outside import outside_bytes
from lowtide.device.process import forget_high_water, high_water_bytes
from lowtide.models import ModelOptions, build

training = build("resnet152", 4, ModelOptions(), seed=0)
optimizer = torch.optim.AdamW(training.model.parameters())
before = outside_bytes()
step = lowtide.train_step(
    training.model, optimizer, training.batch, training.loss, budget="1060MiB", counts="process", progress=False
)
step(training.batch)
forget_high_water()
for _ in range(3):
    step(training.batch)
print(high_water_bytes() - before, step.plan.budget)
"""


def test_the_process_stays_inside() -> None:
    """From the second step on, when the optimizer's state is there; 2 % more is what pages and libraries may add."""
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    taken, for_tensors = map(int, done.stdout.split())
    budget = 1060 * 2**20
    assert for_tensors < budget
    assert 0.9 * budget < taken < 1.02 * budget
