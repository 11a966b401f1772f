"""`lowtide bench swap` and `lowtide train --swap` end to end."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.errors import InputError
from lowtide.experiments.swap.record import Method, SwapComparison
from lowtide.experiments.swap.report import COLUMNS
from lowtide.records.training_run import TrainingRun
from lowtide.records.transfer import TransferSample
from lowtide.training import swap_use

MODEL = """
import torch
from torch import nn

def net(n):
    block = lambda: (nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(*(part for _ in range(4) for part in block()), nn.Linear(256, 1))
    return model, torch.randn(n, 256), lambda model, batch: model(batch).square().mean()
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model whose values are worth swapping, as if copies took no time."""
    monkeypatch.setattr(swap_use, "measure_copies", lambda space, largest: (TransferSample(2**20, 1e-4, 1e-4),))
    monkeypatch.setattr(swap_use, "measure_slowdown", lambda space: 0.0)
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:net"


@pytest.mark.slow
def test_all_ways_are_measured_at_all_budgets(net: str, tmp_path: Path) -> None:
    words = ["bench", "swap", net, "--batch-size", "512", "--left", "60,1", "--rounds", "2", "--time-limit", "2"]
    result = CliRunner().invoke(app, [*words, "--swap-dir", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = SwapComparison.load(tmp_path / "out" / "swap.json")
    assert [(row.left, row.way) for row in found.rows] == [(left, way) for left in (0.6, 0.01) for way in Method]
    alone, swapping, both = found.rows[:3]
    for row in (alone, swapping, both):
        assert row.plan is not None
        assert row.measured_peak_B is not None
        assert row.measured_peak_B <= row.budget_B
        parts = found.accounting(row, row.wait_ms)
        known = parts.recompute + parts.pack + parts.unpack + parts.state + parts.swap + parts.swap_wait
        assert known + parts.program + parts.update + parts.other == pytest.approx(parts.difference)
    assert alone.plan is not None
    assert alone.plan.swapped.count == 0
    assert alone.wait_ms == (0.0, 0.0)
    assert swapping.plan is not None
    assert swapping.plan.swapped.count > 0
    assert swapping.plan.recomputed.count == swapping.plan.packed.count == 0
    assert swapping.ops is not None
    assert swapping.ops.swap > 0
    assert swapping.ops.recompute == 0
    assert all(row.failure is not None for row in found.rows[3:])
    assert "no plan" in result.output
    with (tmp_path / "out" / "swap.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert int(rows[1]["swapped_activations"]) == swapping.plan.swapped.count
    assert (tmp_path / "out" / "swap.png").stat().st_size > 10_000


@pytest.mark.slow
def test_training_with_swaps_is_equal_and_says_what_was_swapped(net: str, tmp_path: Path) -> None:
    words = ["train", net, "--batch-size", "512", "--steps", "3", "--budget", "60%", "--swap", "disk", "--compare"]
    result = CliRunner().invoke(app, [*words, "--swap-dir", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "Equal to eager training, bit for bit" in result.output
    run = TrainingRun.load(tmp_path / "out" / "training.json")
    assert run.plan is not None
    assert run.plan.swapped.count > 0
    assert run.plan.swapped_B > 0


def test_bad_options_are_refused(net: str, tmp_path: Path) -> None:
    words = ["train", net, "--batch-size", "512", "--steps", "1"]
    result = CliRunner().invoke(app, [*words, "--swap", "disk"])
    assert isinstance(result.exception, InputError)
    assert "without --budget nothing is planned" in str(result.exception)
    result = CliRunner().invoke(app, [*words, "--swap", "tape", "--budget", "60%"])
    assert "swap must be one of" in str(result.exception)
    out = ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["bench", "swap", net, "--batch-size", "8", "--rounds", "0", *out])
    assert "--rounds must be at least 1" in str(result.exception)
    assert not (tmp_path / "out").exists()
