"""All that the process of a rank holds of tensors, measuring before the first step included, is within the budget."""

from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import lowtide
from lowtide.device.meter import ShimMeter
from lowtide.device.shim import compiler
from tests.parallel.two_ranks import on_two

ROWS, WIDTH = 16, 1536


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()  # type: ignore[no-any-return]


def step_of(batch: torch.Tensor, budget: int | None = None) -> lowtide.TrainStep:
    """Parameters take more than activations, and the buffers of collectives as much again."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in "1234"))
    for part in (*model, model):
        fully_shard(part, mesh=init_device_mesh("cpu", (distributed.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return lowtide.train_step(model, optimizer, batch, loss, budget, sentinel=False, progress=False)


def taken(rank: int) -> str:
    """The budget, and what start-up and steps take of it."""
    meter, batch = ShimMeter(), torch.randn(ROWS, WIDTH)
    with step_of(batch) as captured:
        captured(batch)
        peak = torch.tensor(captured.measured_peak)
    distributed.all_reduce(peak, distributed.ReduceOp.MAX)
    del captured
    budget = int(0.9 * int(peak))
    meter.start()
    step = step_of(batch, budget)
    startup, peaks = meter.stop().peak, []
    for _ in range(5):
        step(batch)
        peaks.append(step.measured_peak or 0)
    return f"{budget} {startup} {peaks[0]} {max(peaks)}"


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="only the allocator shim counts all that a process holds: no g++ here")
def test_start_and_steps_are_within_the_budget(tmp_path: Path) -> None:
    for said in on_two(taken, tmp_path):
        budget, startup, *steps = map(int, said.split())
        assert max(startup, *steps) <= budget, said
