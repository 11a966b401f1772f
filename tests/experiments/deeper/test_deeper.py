"""The start by the number of layers: record, files, and one run of it all."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.experiments.deeper.record import Deeper, Depth
from lowtide.experiments.deeper.report import draw_depths, write_depths


def test_record_and_files(tmp_path: Path) -> None:
    depths = tuple(Depth(n, 100 * n, 0.1 * n, 0.3, 0.02 * n, 1.0, 0.01) for n in (12, 24))
    found = Deeper("75%", None, "2.13", 2, depths)
    found.save(tmp_path / "deeper.json")
    assert Deeper.load(tmp_path / "deeper.json") == found
    write_depths(tmp_path / "deeper.csv", found)
    rows = list(csv.DictReader((tmp_path / "deeper.csv").read_text().splitlines()))
    assert [row["ops"] for row in rows] == ["1200", "2400"]
    draw_depths(tmp_path / "deeper.png", found)
    assert (tmp_path / "deeper.png").read_bytes().startswith(b"\x89PNG")


def test_layers_that_are_no_numbers(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["bench", "deeper", "--layers", "12,many", "--out", str(tmp_path / "x")])
    assert said.exit_code != 0
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_all_of_it(tmp_path: Path) -> None:
    out = tmp_path / "deeper"
    options = ["--layers", "1,2", "--time-limit", "1", "--budget", "90%"]
    said = CliRunner().invoke(app, ["bench", "deeper", *options, "--out", str(out)])
    assert said.exit_code == 0, said.output
    found = Deeper.load(out / "deeper.json")
    assert [depth.layers for depth in found.depths] == [1, 2]
    assert found.depths[0].ops < found.depths[1].ops
