"""Steps on several ranks: the table from made-up figures, and the whole experiment on a small model."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.experiments.parallel.record import Kind, KindRow, Parallel, RankStep, switches
from lowtide.experiments.parallel.report import draw_parallel, parallel_table, write_parallel_csv

MIB = 2**20
MODEL = """
import torch
from torch import nn

def net(n):
    blocks = [nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)]
    model = nn.Sequential(*blocks, nn.Linear(96, 1))
    return model, torch.randn(n, 96), lambda model, batch: model(batch).square().mean()
"""


def row(kind: Kind, group: int, ms: float, peak: int, failure: str | None = None) -> KindRow:
    counted = None if kind.budget_B is None else peak
    rounds = [(RankStep(k * ms, peak, counted, 1.0), RankStep(k * ms + 1, peak - 5, counted, 2.0)) for k in (9, 1, 1)]
    return KindRow(kind, group, failure, 1.0, None, None, None, () if failure else tuple(rounds))


RESHARD, AGAIN = switches("fsdp")[:2]
PLAN = Kind("fsdp", True, False, 70 * MIB, AGAIN.name)
FOUND = Parallel(
    *("m", 5_000_000, 4, "adam", 2, 1, "2.13.0", 1),
    rows=(
        row(RESHARD, 0, 99, 100 * MIB),
        row(AGAIN, 0, 129, 70 * MIB),
        row(PLAN, 0, 116, 69 * MIB),
        row(RESHARD, 1, 99, 100 * MIB),
        row(Kind("fsdp", True, False, 60 * MIB, "fsdp, 86% of the least"), 1, 0, 0, "too little"),
    ),
)


def test_a_plan_is_held_against_the_kind_whose_peak_it_has(tmp_path: Path) -> None:
    console = Console(width=200, record=True)
    console.print(parallel_table(FOUND))
    text = console.export_text()
    line = next(line for line in text.splitlines() if "lowtide at fsdp, reshard, checkpoint" in line)
    assert "69.0 MiB" in line
    assert "+17.0%" in line
    assert "-10.0%" in line
    assert "does not hold" not in text
    assert "86% of the least: too little" in text
    slower = replace(FOUND, rows=(*FOUND.rows[:2], row(PLAN, 0, 139, 71 * MIB), *FOUND.rows[3:]))
    console.print(parallel_table(slower))
    assert "does not hold its promise: +7.7% time, 71.0 MiB of 70.0 MiB" in console.export_text()
    write_parallel_csv(FOUND, tmp_path / "parallel.csv")
    with (tmp_path / "parallel.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[2]["peaks_B"] == f"{69 * MIB} {69 * MIB - 5}"
    assert (rows[2]["no_slower"], rows[2]["no_larger"], rows[2]["equal"]) == ("True", "True", "True")
    assert rows[4]["failure"] == "too little"


def test_a_record_is_read_back_and_drawn(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "parallel.json")
    assert Parallel.load(tmp_path / "parallel.json") == FOUND
    draw_parallel(FOUND, tmp_path / "parallel.png")
    assert (tmp_path / "parallel.png").stat().st_size > 5000


@pytest.mark.parametrize(("words", "said"), [(("--ways", "tp"), "'tp'"), (("--below", "x"), "--below takes per cents")])
def test_wrong_words(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "parallel", "mlp", *words, "--out", str(tmp_path)])
    assert result.exit_code != 0
    assert said in str(result.exception)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kinds"), [("fsdp", 4), ("ddp", 2)])
def test_two_ranks_of_every_kind(way: str, kinds: int, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    words = ["bench", "parallel", f"{tmp_path / 'net.py'}:net", "--batch-size", "256", "--ways", way, "--rounds", "1"]
    words += ["--below", "95", "--time-limit", "2", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = Parallel.load(tmp_path / "out" / "parallel.json")
    assert [found.is_equal(row) for row in found.rows] == [True] * len(found.rows)
    plans = [row for row in found.rows if row.kind.budget_B is not None and row.failure is None]
    assert len(plans) >= kinds
    assert all(step.planned_peak_B <= row.kind.budget_B for row in plans for ranks in row.steps for step in ranks)  # type: ignore[operator]
