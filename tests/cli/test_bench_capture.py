"""`lowtide bench capture` end to end, on the smallest model."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.experiments.capture.record import Comparison


@pytest.mark.slow
def test_it_measures_both_and_writes_the_raw_numbers(tmp_path: Path) -> None:
    words = ["bench", "capture", "mlp", "--batch-size", "4", "--steps", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = Comparison.load(tmp_path / "capture_mlp.json")
    assert len(found.eager_ms) == len(found.captured_ms) == 2
    assert found.captured_peak_B <= found.eager_peak_B
    assert found.op_peak_B == found.captured_peak_B
    assert "neighbouring pairs" in result.output
