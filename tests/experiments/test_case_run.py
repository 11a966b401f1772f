"""One case of an experiment: with and without a plan learn the same; failures are results."""

from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.experiments import case_run
from lowtide.experiments.case import Case, CaseSettings, Outcome
from lowtide.experiments.case_run import CaseRun
from tests.experiments.workers import settings

MODEL = """
import torch
from torch import nn

def net(n):
    if n > 1000:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    if n == 999:
        raise ValueError("odd")
    block = lambda: (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(*(part for _ in range(4) for part in block()), nn.Linear(64, 1))
    return model, torch.randn(n, 64), lambda model, batch: model(batch).square().mean()
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:net"


def _run(wanted: CaseSettings) -> Case:
    run = CaseRun(wanted)
    run.begin()
    for _ in range(wanted.warmup + wanted.steps):
        run.step()
    for _ in range(wanted.op_runs):
        run.op_by_op()
    run.give_back()
    return run.end()


def test_with_and_without_a_plan_learn_the_same(net: str, tmp_path: Path) -> None:
    wanted = settings(model=net, batch_size=256, budget="60%")
    planned, plain = _run(wanted), _run(settings(model=net, batch_size=256, budget=None, planned=False))
    assert planned.losses == plain.losses
    assert len(planned.losses) == 3
    assert len(planned.ms) == 2
    assert planned.plan is not None
    assert planned.peak_B is not None
    assert plain.peak_B is not None
    assert planned.peak_B <= planned.plan.figures.budget_B <= 0.6 * plain.peak_B + 1024
    assert planned.ops is not None
    assert planned.ops.recompute + planned.ops.pack > 0
    assert plain.ops is not None
    assert plain.ops.recompute == plain.ops.pack == 0
    for case in (planned, plain):
        assert sum(part.bytes for part in case.parts) == pytest.approx(case.peak_B, rel=0.01)
    fates = planned.plan.activations
    assert fates.recomputed.count + fates.packed.count > 0
    assert fates.swapped.count == 0
    planned.save(tmp_path / "case.json")
    assert Case.load(tmp_path / "case.json") == planned


def test_a_budget_that_cannot_be_met_is_a_result(net: str) -> None:
    found = _run(settings(model=net, batch_size=8, budget="1KiB"))
    assert found.outcome is Outcome.INFEASIBLE
    assert "no plan can fit" in (found.failure or "")
    assert found.ms == found.losses == ()


def test_running_out_of_memory_is_a_result(net: str) -> None:
    found = _run(settings(model=net, batch_size=2000, planned=False, budget=None))
    assert found.outcome is Outcome.OUT_OF_MEMORY
    assert found.peak_B is None


def test_other_failures_are_not(net: str) -> None:
    with pytest.raises(InputError, match="odd"):
        _run(settings(model=net, batch_size=999, planned=False, budget=None))


@pytest.mark.slow
def test_under_a_limit_the_budget_is_what_it_leaves(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []
    monkeypatch.setattr(case_run, "limit_memory", lambda size, device: limits.append(size))
    monkeypatch.setattr(case_run, "process_bytes", lambda: 1000)
    monkeypatch.setattr(case_run, "RESERVE", 500)
    wanted = settings(model=net, batch_size=64, budget=None, memory_limit_B=2**30, op_runs=0)
    found = _run(wanted)
    assert limits == [2**30]
    assert found.base_B == 1000
    assert found.plan is not None
    assert found.plan.figures.budget_B == 2**30 - 1500
    with pytest.raises(InputError, match="leaves nothing to plan with"):
        _run(settings(model=net, batch_size=64, budget=None, memory_limit_B=1400))
