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
from lowtide.experiments.process.compare import changes
from lowtide.experiments.process.peers import find_peer
from lowtide.experiments.process.record import CAPTURED, EAGER, WARM, KindRow, ProcessMemory, Promise, StepFigures
from lowtide.experiments.process.report import draw_process, process_table, write_process_csv
from lowtide.models import ModelOptions, build

MIB = 2**20


def row(kind: str, ms: float, high: int, budget: int | None = None, failure: str | None = None) -> KindRow:
    steps = (
        StepFigures(9 * ms, 10**6, 9 * high, high, 1.0),
        *(StepFigures(ms + k, k, high + k, high, 0.5) for k in range(3)),
    )
    promise = None if budget is None else Promise(budget, 0.08, 0.07)
    return KindRow(
        kind, budget, failure, 300 * MIB, 50 * MIB, 60 * MIB, 3.0, promise, None, None, () if failure else steps
    )


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
    assert "+8.0%" in line
    assert "+7.0%" in line
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
    words += ["--peers", "compile aot 0.5", "--variants", "no packing, no addresses", "--at-once", "5"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = ProcessMemory.load(tmp_path / "process.json")
    first = [WARM, EAGER, CAPTURED, "compile aot 0.5", "95% left"]
    second = [WARM, "95% left, no packing", "95% left, no addresses"]
    assert [row.kind for row in found.rows] == first + second
    assert [row.group for row in found.rows] == [0] * 5 + [1] * 3
    assert [row.kind for row in found.rows if not found.is_equal(row)] in ([], ["compile aot 0.5"])
    assert [row.arena_B is None for row in found.rows[4:]] == [False, True, False, True]
    assert all(len(found.counted(row)) == 2 for row in found.rows)
    assert all(step.high_B > row.resident_B for row in found.rows for step in found.counted(row))


def test_too_few_steps_to_warm_up_are_refused(tmp_path: Path) -> None:
    words = ["bench", "process", "mlp", "--batch-size", "4", "--warmup", "1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code != 0
    assert "--warmup must be at least 2" in str(result.exception)


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


def test_each_group_has_its_own_control() -> None:
    slow = [replace(row(kind, ms, 90 * MIB), group=1) for kind, ms in ((WARM, 200), ("checkpoint", 300))]
    found = replace(FOUND, rows=(*FOUND.rows, *slow))
    assert found.against_warm(slow[1])[0] == pytest.approx(0.5)
    assert found.against_warm(FOUND.rows[0])[0] == pytest.approx(0.2)


def test_a_run_is_like_itself() -> None:
    assert changes(FOUND, FOUND) == []


def test_what_is_worse_is_named() -> None:
    """Slower than the noise, more bytes, other losses, no plan; faster is no regression."""
    rows = list(FOUND.rows)
    rows[0] = row(EAGER, 90, 100 * MIB)
    rows[2] = row(CAPTURED, 130, 99 * MIB)
    rows[3] = row("50% left", 0, 0, 80 * MIB, "not any more")
    found = changes(FOUND, replace(FOUND, rows=tuple(rows)))
    assert [(c.kind, c.figure, c.is_worse) for c in found] == [
        (EAGER, "time against warm eager", False),
        (CAPTURED, "allocator", True),
        (CAPTURED, "process", True),
        (CAPTURED, "time against warm eager", True),
        ("50% left", "plan", True),
    ]


def test_noise_is_no_change() -> None:
    """The middle halves of the rounds overlap."""
    noisy = replace(
        FOUND.rows[2],
        steps=tuple(replace(s, ms=ms) for s, ms in zip(FOUND.rows[2].steps, (900, 80, 99, 130), strict=True)),
    )
    rows = (*FOUND.rows[:2], noisy, *FOUND.rows[3:])
    assert changes(FOUND, replace(FOUND, rows=rows)) == []


def test_two_runs_are_compared_on_the_command_line(tmp_path: Path) -> None:
    for name, ms in (("a", 100), ("b", 150)):
        (tmp_path / name).mkdir()
        rows = (*FOUND.rows[:2], row(CAPTURED, ms, 98 * MIB))
        replace(FOUND, rows=rows).save(tmp_path / name / "process.json")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    worse = CliRunner().invoke(app, ["bench", "--compare", a, b])
    assert worse.exit_code != 0
    assert "1 of m's figures are worse" in str(worse.exception)
    assert CliRunner().invoke(app, ["bench", "--compare", b, a]).exit_code == 0
    same = CliRunner().invoke(app, ["bench", "--compare", a, a])
    assert "nothing has changed" in same.output


def test_runs_of_two_models_are_not_compared() -> None:
    with pytest.raises(InputError, match="compare two runs of one"):
        changes(FOUND, replace(FOUND, model="n"))
