"""lowtide's backend against torch's own budget: the verdict from made-up figures, and the whole on a small model."""

import csv
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.experiments.compiled.record import EAGER, Compared, KindRow, StepFigures
from lowtide.experiments.compiled.report import compared_table, draw_compared, write_compared_csv
from lowtide.experiments.compiled.run import budgets_of

MIB = 2**20


def row(
    kind: str, ms: float, peak: int, *, share: float | None = None, budget: int | None = None, off: float = 0.0
) -> KindRow:
    steps = (StepFigures(9 * ms, 9 * peak, 1.0), *(StepFigures(ms + k, peak, 0.5 + off) for k in range(2)))
    return KindRow(kind, share, budget, None, steps, off)


FOUND = Compared(
    *("m", 4, 0.1, "adam", "eager", 2, "2.13.0", 1, 10 * MIB),
    rows=(
        row(EAGER, 90, 100 * MIB),
        row("torch 1", 100, 100 * MIB, share=1.0),
        row("torch 0.5", 120, 80 * MIB, share=0.5, off=0.7),
        row("lowtide 100 MiB", 100, 99 * MIB, budget=100 * MIB),
        row("lowtide 80 MiB", 108, 79 * MIB, budget=80 * MIB),
        KindRow("lowtide 20 MiB", None, 20 * MIB, "too little", (), None),
    ),
)


def test_each_peak_of_torchs_has_its_answer(tmp_path: Path) -> None:
    found = [(theirs.kind, ours.kind) for theirs, ours, _ in FOUND.answers()]
    assert found == [("torch 1", "lowtide 100 MiB"), ("torch 0.5", "lowtide 80 MiB")]
    console = Console(width=200, record=True)
    console.print(compared_table(FOUND))
    text = console.export_text()
    assert "lowtide 80 MiB takes 79.0 MiB and -10.0%" in text
    assert "lowtide 20 MiB: too little" in text
    line = next(line for line in text.splitlines() if line.strip().startswith("torch 0.5"))
    assert "off by 7.0e-01" in line
    assert "others" in line
    write_compared_csv(FOUND, tmp_path / "compile.csv")
    with (tmp_path / "compile.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["losses_equal"] for r in rows] == ["True", "True", "False", "True", "True", ""]
    assert rows[5]["failure"] == "too little"
    FOUND.save(tmp_path / "compile.json")
    assert Compared.load(tmp_path / "compile.json") == FOUND
    draw_compared(FOUND, tmp_path / "compile.png")
    assert (tmp_path / "compile.png").stat().st_size > 5000


def test_budgets_are_torchs_peaks_and_below() -> None:
    assert budgets_of([1000, 999, 800, 998], [0.5, 0.75], 200) == [998, 800, 650, 500]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--shares", "0.5"], "--shares takes 1.0, with which the others are compared"),
        (["--shares", "much"], "--shares takes numbers such as"),
        (["--executor", "cudagraphs"], "--executor must be one of eager, inductor"),
        (["--warmup", "2"], "--warmup must be at least 3"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "compile", "mlp", "--out", str(tmp_path), *words])
    assert result.exit_code != 0
    assert says in str(result.exception)


CHAIN = """
import torch
from torch import nn

def chain(rows):
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1)) for _ in range(8)]
    return nn.Sequential(*blocks), torch.randn(rows, 32), lambda model, x: model(x).square().mean()
"""


@pytest.mark.slow
def test_the_kinds_take_turns_in_their_own_processes(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    words = ["bench", "compile", f"{tmp_path}/chain.py:chain", "--batch-size", "2048", "--shares", "1.0,0.5"]
    words += ["--below", "80", "--rounds", "1", "--warmup", "3", "--time-limit", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = Compared.load(tmp_path / "out" / "compile.json")
    ours = [row for row in found.rows if row.budget_B is not None]
    assert all(row.failure is None and row.off == 0 and found.losses_equal(row) for row in ours)
    assert all(found.peak(row) <= (row.budget_B or 0) for row in ours)
    half = next(row for row in found.rows if row.share == 0.5)
    assert half.off is not None
    assert half.off > 0.1  # other random numbers: torch's gradients are wrong here
