"""`lowtide policies` end to end on a small model."""

import csv
from pathlib import Path

import pytest

from lowtide.cli.policies import NAMES
from lowtide.experiments.policies.record import Policies
from lowtide.experiments.policies.report import COLUMNS
from tests.cli.running import run_main

MODEL = """
import torch
from torch import nn

def net(n):
    model = nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(16, 16), nn.GELU())), nn.Linear(16, 1))
    return model, torch.randn(n, 16), lambda model, batch: model(batch).square().mean()
"""


@pytest.mark.slow
def test_every_policy_is_measured_from_slack_to_the_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    out = tmp_path / "out"
    words = (f"{tmp_path / 'net.py'}:net", "--batch-size", "64", "--points", "3", "--rounds", "2", "--time-limit", "1")
    assert run_main(monkeypatch, "policies", *words, "--optimizer", "sgd", "--out", out) == 0
    assert {path.name for path in out.iterdir()} == set(NAMES)
    found = Policies.load(out / "policies.json")
    assert len(found.rows) == 4 * 3
    budgets = [row.budget_B for row in found.of("optimal")]
    assert budgets[0] == found.unplanned_peak_B
    assert budgets[-1] == found.floor_B < budgets[1] < budgets[0]
    for policy in ("keep_all", "chen", "mutwo", "optimal"):
        slack = found.of(policy)[0]
        assert slack.step == "captured"
        assert slack.ms == found.captured_ms
    assert found.of("keep_all")[-1].failure is not None
    tight = found.of("optimal")[1]
    assert tight.measured_peak_B is not None
    assert tight.measured_peak_B <= tight.budget_B
    assert len(tight.ms) == 2
    assert tight.activations is not None
    assert tight.activations.recomputed.count > 0
    assert tight.bound is not None
    assert tight.predicted_overhead is not None
    assert tight.bound <= tight.predicted_overhead
    by_step = {row.step: row.ms for row in found.rows if row.step}
    assert all(row.ms == by_step[row.step] for row in found.rows if row.step), "the same step is measured once"
    with (out / "policies.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["policy"] for row in rows[::3]] == ["keep_all", "chen", "mutwo", "optimal"]
    assert rows[2]["failure"]
    assert "recomputed" in (out / "tightest_plan.txt").read_text()
    assert "no plan" in capsys.readouterr().out


def test_plans_that_are_too_slow_are_only_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    out = tmp_path / "out"
    words = ("--batch-size", "64", "--points", "2", "--rounds", "1", "--time-limit", "1", "--slowest", "1")
    source = f"{tmp_path / 'net.py'}:net"
    assert run_main(monkeypatch, "policies", source, *words, "--policies", "mutwo,optimal", "--out", out) == 0
    slack, tight = Policies.load(out / "policies.json").of("optimal")
    assert slack.ms
    assert tight.predicted_overhead is not None
    assert tight.predicted_overhead > 0
    assert (tight.step, tight.measured_peak_B, tight.ms, tight.ops) == ("", None, (), None)
    with (out / "policies.csv").open() as file:
        row = list(csv.DictReader(file))[-1]
    assert float(row["predicted_overhead"]) == tight.predicted_overhead
    assert row["against_captured"] == row["measured_peak_B"] == ""
    assert "too slow to run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policies", "best"), "there is no policy 'best'"),
        (("--points", "1"), "--points must be at least 2"),
        (("--time-limit", "0"), "the time limit must be"),
        (("--slowest", "nan"), "--slowest must be at least 1"),
    ],
)
def test_errors_leave_nothing(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_main(monkeypatch, "policies", "mlp", "--batch-size", "2", *words, "--out", tmp_path / "out") == 2
    assert message in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
