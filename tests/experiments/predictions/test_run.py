"""Predictions are gathered from every kind of record, and the worst are named."""

import csv
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.experiments.largest.record import Largest
from lowtide.experiments.predictions.record import Prediction
from lowtide.experiments.predictions.report import (
    COLUMNS,
    draw_predictions,
    worst_peaks,
    worst_times,
    write_predictions_csv,
)
from lowtide.experiments.predictions.run import predictions
from lowtide.experiments.sweep.record import Pair, Sweep
from tests.cli.running import run_main
from tests.experiments.records import MIB, case, ways
from tests.experiments.workers import MACHINE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    planned = case(planned=True, ms=(10.0, 12.0, 14.0), peak=int(590 * 1.01 * MIB))
    plain = case(planned=False, ms=(10.0, 10.0, 10.0), peak=1000 * MIB)
    folder = tmp_path / "reports"
    (folder / "deep" / "er").mkdir(parents=True)
    Sweep("net", "60%", MACHINE, (Pair(4, planned, plain),)).save(folder / "deep" / "er" / "sweep.json")
    (folder / "swap").mkdir()
    ways().save(folder / "swap" / "swap.json")
    Largest("net", 2**30, 0.0, 64, MACHINE, (planned, plain), None, None).save(folder / "deep" / "largest.json")
    (folder / "other.json").write_text("not read")
    return folder


def test_they_come_from_all_records(reports: Path) -> None:
    found = predictions(reports)
    assert [each.experiment for each in found] == ["sweep", "sweep", "largest", "swap", "swap"]
    with_plan, without, limit, _, both = found
    assert both.case == "50% of the bytes left, both"
    assert both.predicted_ms == pytest.approx(11)
    assert with_plan.file == "deep/er/sweep.json"
    assert with_plan.peak_error == pytest.approx(0.01)
    assert with_plan.predicted_ms == pytest.approx(11)
    assert (with_plan.measured_ms, with_plan.low_ms, with_plan.high_ms) == (12, 10, 14)
    assert with_plan.time_error == pytest.approx(1 / 11)
    assert without.peak_error == 0
    assert without.time_error is limit.time_error is None


def test_the_committed_reports_are_read() -> None:
    assert {each.experiment for each in predictions(ROOT / "reports")} >= {"budgets", "training"}


def test_the_worst_come_first(tmp_path: Path) -> None:
    def one(peak: int, ms: float | None) -> Prediction:
        return Prediction("f", "sweep", "net", f"{peak}, {ms}", 100, peak, 10.0, ms, ms, ms)

    found = [one(100, 10.0), one(90, 30.0), one(105, 1.0), one(100, None)]
    assert [each.measured_peak_B for each in worst_peaks(found)] == [90, 105, 100]
    assert [each.measured_ms for each in worst_times(found)] == [30, 1, 10]
    draw_predictions(found, tmp_path / "p.png")
    write_predictions_csv(found, tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert float(rows[1]["peak_error"]) == pytest.approx(-0.1)
    assert rows[3]["time_error"] == ""


def test_the_command(reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_main(monkeypatch, "predictions", reports, "--out", tmp_path / "out") == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"predictions.csv", "predictions.png"}


def test_nothing_to_read_and_damaged_files_are_said(reports: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        predictions(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no planned case"):
        predictions(tmp_path / "empty")
    (reports / "budgets.json").write_text("{}")
    with pytest.raises(InputError, match=r"budgets.json is not a"):
        predictions(reports)
