"""Estimates against a measured step: every op counts once, and the file is a device."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.errors import InputError
from lowtide.fitting.calibration import Calibration, KindError
from lowtide.fitting.devices import find_device
from lowtide.profiling.estimate import Rates


def test_a_calibration_is_a_device_with_error_bars(tmp_path: Path) -> None:
    words = ["bench", "fit", "mlp:64", "mlp:256", "--runs", "1", "--out", str(tmp_path)]
    ran = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ran.exit_code == 0
    assert "matrix product" in ran.output
    found = Calibration.load(tmp_path / "calibration.json")
    assert [step.model for step in found.steps] == ["mlp", "mlp"]
    assert sum(kind.ops for kind in found.kinds) > 10
    assert all(kind.measured_ms > 0 for kind in found.kinds)
    assert found.bytes_error < 0.01
    device = find_device(str(tmp_path / "calibration.json"))
    assert device.rates.times["matrix product"] > 0
    assert device.time_error == found.time_error
    assert not device.gpu


@pytest.mark.parametrize(
    ("words", "said"),
    [(["mlp"], "with its batch size"), (["mlp:x"], "with its batch size"), (["mlp:4", "--runs", "0"], "--runs")],
)
def test_bad_input(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        CliRunner().invoke(app, ["bench", "fit", *words, "--out", str(tmp_path / "x")], catch_exceptions=False)


def test_what_starting_takes_counts_once() -> None:
    """Ten ops of 1 ms each that the rates put at 0.6, of which 0.2 is for starting: the clock says 1 ms again."""
    kind = KindError("matrix product", 10, measured_ms=10.0, estimated_ms=6.0, off=0.0)
    rates = Rates(1e6, {"float32": 1e9}, start_ms=0.2, times={kind.kind: kind.times(0.2)})
    assert rates.ms(400_000, 0.0, "float32", kind.kind) == pytest.approx(1.0)
