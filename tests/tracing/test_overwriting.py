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
from tests.zoo import Case, often


class Loop(nn.Module):
    """A cell in a loop, whose results are written into one tensor."""

    def __init__(self, cell: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.head = cell(8, 16), nn.Linear(16, 4)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        out, state = x.new_zeros(*x.shape[:2], 16), None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
            out[:, t] = state[0] if isinstance(state, tuple) else state
        return self.head(out).square().mean()  # type: ignore[no-any-return]


CELLS = [nn.LSTMCell, nn.RNNCell, nn.GRUCell]
"""The gates of the last two are chunks of columns, which are overwritten one by one."""


def case(cell: type[nn.RNNCellBase]) -> Case:
    torch.manual_seed(0)
    return Case(Loop(cell), torch.randn(8, 12, 8), torch.randn(8, 12, 8))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize("cell", often(CELLS, 1))
def test_the_peak_is_eagers(cell: type[nn.RNNCellBase]) -> None:
    loop = case(cell)
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


@pytest.mark.parametrize("cell", often(CELLS, 1))
@pytest.mark.parametrize("budget", [None, "85%"])
def test_equal_to_eager(cell: type[nn.RNNCellBase], budget: str | None) -> None:
    loop = case(cell)
    ours, theirs = setting(loop)
    step = lowtide.train_step(ours.model, ours.optimizer, loop.batch, None, budget, time_limit=1)
    assert_equal(loop, ours, theirs, step)


class OtherNumbers(nn.Module):
    """Columns are overwritten, and the same bytes are then read as numbers of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        made = self.enter(x)
        y = made.detach() * 2
        pairs = torch.view_as_complex(y.view(*x.shape[:-1], -1, 2))
        columns = y[:, :4].sigmoid_()
        return made.sum() + columns.square().sum() + (pairs * pairs).imag.sum()  # type: ignore[no-any-return]


def test_bytes_that_are_read_as_other_numbers() -> None:
    numbers = Case(OtherNumbers(), torch.randn(4, 8), torch.randn(4, 8))
    ours, theirs = setting(numbers)
    assert_equal(numbers, ours, theirs, lowtide.train_step(ours.model, ours.optimizer, numbers.batch))


def test_a_second_capture_is_like_the_first() -> None:
    """oneDNN gives the gradient of both biases as one tensor, which torch's cache of fake results forgets."""
    model, x = nn.LSTM(8, 8, num_layers=2), torch.randn(4, 5, 8)
    first, second = (
        lowtide.capture(model, torch.optim.SGD(model.parameters()), x, lambda m, b: m(b)[0].square().mean())
        for _ in range(2)
    )
    assert [op.op for op in first.ops] == [op.op for op in second.ops]
    assert [storage.bytes for storage in first.storages] == [storage.bytes for storage in second.storages]
