"""Writes through views take no second copy of the whole: what is captured takes what eager takes."""

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.device.clock import clock_for
from lowtide.device.meter import ShimMeter
from lowtide.device.shim import compiler
from lowtide.profiling.runs import run_plain
from tests.training.test_train_step import assert_equal, setting
from tests.zoo import Case


class Loop(nn.Module):
    """A cell in a loop, whose results are written into one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.RNNCell(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out, hidden = x.new_zeros(*x.shape[:2], 16), x.new_zeros(x.shape[0], 16)
        for t in range(x.shape[1]):
            hidden = self.cell(x[:, t], hidden)
            out[:, t] = hidden
        return self.head(out).square().mean()  # type: ignore[no-any-return]


def case() -> Case:
    torch.manual_seed(0)
    return Case(Loop(), torch.randn(8, 12, 8), torch.randn(8, 12, 8))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler on this machine")
def test_the_peak_is_eagers() -> None:
    loop = case()
    optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.1, momentum=0.9)
    meter = ShimMeter()

    def eager() -> int:
        meter.start()
        loop.model(loop.batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return meter.stop().peak

    eager()
    graph = lowtide.capture(loop.model, optimizer, loop.batch)
    scatters = [op for op in graph.ops if "scatter" in op.op]
    assert scatters
    assert all(op.overwrites is not None for op in scatters)
    assert run_plain(graph, graph.form.tensors(loop.batch), clock_for(graph.device), meter).peak <= eager()


@pytest.mark.parametrize("budget", [None, "90%"])
def test_equal_to_eager(budget: str | None) -> None:
    loop = case()
    ours, theirs = setting(loop)
    step = lowtide.train_step(ours.model, ours.optimizer, loop.batch, None, budget, time_limit=1)
    assert_equal(loop, ours, theirs, step)
