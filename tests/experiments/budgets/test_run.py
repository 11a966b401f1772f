"""Measuring budgets changes nothing of the user's."""

import torch
from torch import Tensor, nn

import lowtide
from lowtide.experiments.budgets.run import compare_budgets


def test_measuring_leaves_everything_as_it_was() -> None:
    model = nn.Sequential(
        *(part for _ in range(4) for part in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)))
    )
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(64, 16)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        found = model(batch).square().mean()
        assert isinstance(found, Tensor)
        return found

    before = {name: x.clone() for name, x in model.state_dict().items()}
    generator = torch.get_rng_state()
    graph = lowtide.capture(model, optimizer, batch, loss)
    found = compare_budgets(
        graph, lambda: loss(model, batch), [0.75, 0.01], name="net", rounds=1, op_runs=1, time_limit=2.0
    )
    assert [row.failure is None for row in found.rows] == [True, False]
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())
