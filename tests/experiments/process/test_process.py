"""What steps take of their process: the table from made-up figures, and the whole experiment on the smallest model."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.errors import InputError
from lowtide.experiments.process.peers import find_peer
from lowtide.experiments.process.record import CAPTURED, EAGER, WARM, KindRow, ProcessMemory, StepFigures
from lowtide.experiments.process.report import draw_process, process_table, write_process_csv
from lowtide.models import ModelOptions, build

MIB = 2**20


def row(kind: str, ms: float, high: int, budget: int | None = None, failure: str | None = None) -> KindRow:
    steps = (
        StepFigures(9 * ms, 10**6, 9 * high, high, 1.0),
        *(StepFigures(ms + k, k, high + k, high, 0.5) for k in range(3)),
    )
    return KindRow(kind, budget, failure, 300 * MIB, 50 * MIB, 60 * MIB, None, None, () if failure else steps)


FOUND = ProcessMemory(
    *("m", 4, "adam", 2, "2.13.0", 1),
    rows=(
        row(EAGER, 120, 100 * MIB),
        row(WARM, 100, 104 * MIB),
        row(CAPTURED, 100, 98 * MIB),
        row("50% left", 110, 82 * MIB, 80 * MIB),
        row("5% left", 0, 0, 52 * MIB, "too little"),
    ),
)


def test_the_table_leaves_out_what_came_before(tmp_path: Path) -> None:
    console = Console(width=200, record=True)
    console.print(process_table(FOUND))
    text = console.export_text()
    line = next(line for line in text.splitlines() if line.strip().startswith("50% left"))
    assert "82.0 MiB" in line
    assert "+2.5%" in line
    assert "+9.9%" in line
    assert "5% left: too little" in text
    write_process_csv(FOUND, tmp_path / "process.csv")
    with (tmp_path / "process.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[3]["faults_most"] == "2"
    assert int(rows[3]["process_B"]) == 82 * MIB + 2
    assert rows[4]["failure"] == "too little"


def test_other_losses_are_said(tmp_path: Path) -> None:
    """A peer that computes something else is no peer."""
    other = replace(FOUND.rows[2], kind="compile aot 0.5", steps=(*FOUND.rows[2].steps[:-1], FOUND.rows[2].steps[0]))
    found = replace(FOUND, rows=(*FOUND.rows, other))
    assert found.is_equal(found.rows[2])
    assert not found.is_equal(other)
    draw_process(found, tmp_path / "process.png")
    assert (tmp_path / "process.png").stat().st_size > 5000


def test_a_record_is_read_back(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "process.json")
    assert ProcessMemory.load(tmp_path / "process.json") == FOUND


@pytest.mark.slow
def test_the_kinds_take_turns_in_their_own_processes(tmp_path: Path) -> None:
    words = ["bench", "process", "mlp", "--batch-size", "64", "--left", "95", "--rounds", "2", "--out", str(tmp_path)]
    words += ["--peers", "compile aot 0.5"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = ProcessMemory.load(tmp_path / "process.json")
    assert [row.kind for row in found.rows] == [EAGER, WARM, CAPTURED, "compile aot 0.5", "95% left"]
    assert all(len(found.counted(row)) == 2 for row in found.rows)
    assert all(step.high_B > row.resident_B for row in found.rows for step in found.counted(row))


def test_too_few_steps_to_warm_up_are_refused(tmp_path: Path) -> None:
    words = ["bench", "process", "mlp", "--batch-size", "4", "--warmup", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert "--warmup at least 2" in str(result.exception)


def test_unknown_peers_are_refused_and_the_known_ones_named(tmp_path: Path) -> None:
    words = ["bench", "process", "mlp", "--batch-size", "4", "--peers", "magic", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert "unknown peer 'magic': write one of checkpoint, " in str(result.exception)


def test_a_model_without_blocks_cannot_be_checkpointed() -> None:
    with pytest.raises(InputError, match="mlp has none of the blocks"):
        find_peer("checkpoint")(build("mlp", 2))


def test_checkpointed_blocks_give_the_same_loss() -> None:
    options = ModelOptions(seq_len=4, dropout=0.0)
    plain, wrapped = build("bert-base", 1, options), build("bert-base", 1, options)
    for training in (plain, wrapped):
        layers: Any = training.model.get_submodule("bert.encoder.layer")
        del layers[2:]
    model = find_peer("checkpoint every second")(wrapped)
    losses = [m(**plain.batch).loss for m in (plain.model, model)]
    assert torch.equal(*losses)
