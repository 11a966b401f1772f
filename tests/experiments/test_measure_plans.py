"""Plans are measured beside eager and captured steps; the same step only once."""

import torch
from torch import Tensor, nn

import lowtide
from lowtide.experiments.measure_plans import CAPTURED, EAGER, WantedPlan, measure_plans, measure_profile


def test_plans_that_are_the_same_step_are_measured_once() -> None:
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(16, 16), nn.GELU())))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.randn(64, 16)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        found = model(batch).square().mean()
        assert isinstance(found, Tensor)
        return found

    graph = lowtide.capture(model, optimizer, batch, loss)
    profile = measure_profile(graph, lambda _: None)
    half = (profile.resident_B + profile.peak_B) // 2
    asked = [
        WantedPlan("keep_all", profile.peak_B),
        WantedPlan("optimal", half),
        WantedPlan("optimal", half),
        WantedPlan("optimal", 1),
    ]
    found = measure_plans(
        graph,
        profile,
        lambda: loss(model, batch),
        asked,
        rounds=1,
        warmup=1,
        op_runs=1,
        time_limit=30.0,  # never cut off by the clock, so that the same budget has the same plan
        say=lambda _: None,
    )
    slack, first, second, none = found.keys
    assert slack == CAPTURED
    assert first == second
    assert none == ""
    assert isinstance(found.plans[3], str)
    assert set(found.ms) == {EAGER, CAPTURED, first}
    assert found.peaks[first] <= half < found.peaks[CAPTURED]
