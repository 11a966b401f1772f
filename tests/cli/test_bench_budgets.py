"""`lowtide bench budgets` and `lowtide bench startup` end to end."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.errors import InputError
from lowtide.experiments.budgets.record import Budgets
from lowtide.experiments.budgets.report import COLUMNS
from lowtide.experiments.startup.record import Startup
from lowtide.pages.readme import startup_table

MODEL = """
import torch
from torch import nn

def net(n):
    block = lambda: (nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1))
    model = nn.Sequential(*(part for _ in range(6) for part in block()), nn.Linear(32, 1))
    return model, torch.randn(n, 32), lambda model, batch: (model(batch).square().mean(), batch.mean())
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:net"


@pytest.mark.slow
def test_all_budgets_are_measured_and_the_infeasible_one_is_told(net: str, tmp_path: Path) -> None:
    words = ["bench", "budgets", net, "--batch-size", "256", "--left", "100,50,1", "--rounds", "2"]
    result = CliRunner().invoke(app, [*words, "--time-limit", "2", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"budgets.json", "budgets.csv", "budgets.png"}
    found = Budgets.load(tmp_path / "out" / "budgets.json")
    slack, half, none = found.rows
    assert len(found.eager_ms) == len(found.captured_ms) == len(half.ms) == 2
    assert slack.predicted_overhead == slack.bound == 0
    assert half.measured_peak_B is not None
    assert half.measured_peak_B <= half.budget_B < found.captured_peak_B
    assert half.ops is not None
    assert half.ops.recompute + half.ops.pack > 0
    assert found.captured_ops.recompute == found.captured_ops.pack == 0
    parts = found.accounting(half)
    known = parts.recompute + parts.pack + parts.unpack + parts.state + parts.program + parts.update
    assert known + parts.other == pytest.approx(parts.difference)
    assert none.failure is not None
    assert "fit the step into" in none.failure
    assert "infeasible" in result.output
    with (tmp_path / "out" / "budgets.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [float(row["left"]) for row in rows] == [1.0, 0.5, 0.01]
    assert int(rows[1]["measured_peak_B"]) == half.measured_peak_B
    assert rows[2]["against_eager"] == ""
    assert rows[2]["failure"] == none.failure


@pytest.mark.slow
def test_nothing_feasible_is_still_a_result(net: str, tmp_path: Path) -> None:
    words = ["bench", "budgets", net, "--batch-size", "8", "--left", "0.1", "--rounds", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, [*words, "--time-limit", "1"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "budgets.png").is_file()
    assert Budgets.load(tmp_path / "budgets.json").rows[0].ms == ()


@pytest.mark.parametrize("left", ["", "half", "0", "120,50"])
def test_a_share_that_is_none_is_refused(left: str, tmp_path: Path) -> None:
    words = ["bench", "budgets", "mlp", "--batch-size", "2", "--left", left, "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert "--left takes per cents" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_startup_is_counted_in_eager_steps(net: str, tmp_path: Path) -> None:
    words = ["bench", "startup", net, "--batch-size", "256", "--budget", "60%", "--steps", "2", "--shapes", "2"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "startup" / "net")])
    assert result.exit_code == 0, result.output
    found = Startup.load(tmp_path / "startup" / "net" / "startup.json")
    assert [len(shape.later_s) for shape in found.shapes] == [3, 3]
    assert not any(shape.measured for shape in found.shapes)
    assert f"| {found.model}, 60% |" in startup_table(tmp_path / "startup")
    assert "2 other shapes, 0 of them measured" in result.output
    said = ("capture", "plan", "until the first loss", "trained meanwhile", "eager step")
    assert all(word in result.output for word in said)
