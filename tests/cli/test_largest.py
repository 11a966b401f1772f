"""`lowtide largest`: under a real limit in the slow set, with pretended cases otherwise."""

import csv
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowtide.cli import largest as command
from lowtide.experiments.case import Outcome
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.largest.run import find_largest
from tests.cli.running import run_main
from tests.experiments.workers import Pretenders, settings

MODEL = """
import torch
from torch import nn

def blocks(n):
    model = nn.Sequential(*(part for _ in range(24) for part in (nn.Linear(256, 256), nn.GELU())), nn.Linear(256, 1))
    return model, torch.randn(n, 512, 256), lambda model, batch: model(batch).square().mean()
"""


def _pretended(eager: int, planned: int) -> Any:
    fails = {(False, size): Outcome.OUT_OF_MEMORY for size in range(eager + 1, 1025)}
    fails |= {(True, size): Outcome.INFEASIBLE for size in range(planned + 1, 1025)}
    return lambda *args, **options: find_largest(
        *args, **options, start=Pretenders(fails=fails, only_limited=True), room=lambda: 2**40
    )


@pytest.mark.parametrize(("eager", "planned"), [(9, 40), (0, 3), (0, 0), (1024, 1024)])
def test_table_files_and_picture(
    eager: int, planned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_largest", _pretended(eager, planned))
    out = tmp_path / "out"
    assert run_main(monkeypatch, "largest", "mlp", "--memory-limit", "1GiB", "--out", out) == 0
    assert {path.name for path in out.iterdir()} == set(command.NAMES)
    found = Largest.load(out / "largest.json")
    assert (found.trained(planned=False), found.trained(planned=True)) == (eager, planned)
    said = capsys.readouterr().out
    assert "none up to 1024" in said or eager < 1024
    with (out / "largest.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.trials) + (found.planned_there is not None) + (found.eager_need is not None)
    assert {row["outcome"] for row in rows} <= {outcome.value for outcome in Outcome}


def test_what_eager_needs_is_measured_or_predicted() -> None:
    first = settings(planned=False, budget=None, memory_limit_B=2**30)
    found = _pretended(5, 9)(first, "68%", most=16, within=0.0, say=lambda _: None)
    assert found.need_B == (6000, "measured without the limit")
    assert replace(found, eager_need=None).need_B is None
    assert found.planned_there is not None
    better = replace(found, planned_there=replace(found.planned_there, peak_B=4000))
    assert better.reduction == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--memory-limit", "50%"), "only bytes make sense"),
        (("--memory-limit", "many"), "'many' is no size"),
        (("--memory-limit", "1GiB", "--most", "0"), "--most must be at least 1"),
        (("--memory-limit", "1GiB", "--within", "100"), "--within must be from 0 to below 100"),
        (("--memory-limit", "1GiB", "--budget", "x"), "'x' is no size"),
        (("--memory-limit", "1GiB", "--policy", "best"), "there is no policy 'best'"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_main(monkeypatch, "largest", "mlp", *words, "--out", tmp_path / "out") == 2
    assert message in capfd.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the cap on a process is Linux's")
def test_a_batch_that_runs_out_of_memory_trains_with_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blocks.py").write_text(MODEL)
    words = ("--memory-limit", "1GiB", "--time-limit", "3", "--within", "40", "--most", "48", "--optimizer", "sgd")
    model = f"{tmp_path / 'blocks.py'}:blocks"
    assert run_main(monkeypatch, "largest", model, *words, "--out", tmp_path / "out") == 0
    found = Largest.load(tmp_path / "out" / "largest.json")
    assert 0 < found.trained(planned=False) < found.trained(planned=True)
    assert found.reduction is not None
    assert found.reduction >= 0.3
