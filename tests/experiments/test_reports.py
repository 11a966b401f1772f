"""The pictures of the experiments show something, whatever became of the cases."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from lowtide.experiments.case import Outcome
from lowtide.experiments.largest.report import draw_largest
from lowtide.experiments.policies.report import draw_policies
from lowtide.experiments.sweep.latency import draw_latency
from lowtide.experiments.sweep.peaks import draw_peaks
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.experiments.sweep.report import sweep_table
from tests.experiments.records import failed, largest, policies, sweep
from tests.experiments.workers import MACHINE
from tests.reporting.test_csv_files import NASTY


def _nothing_trained() -> Sweep:
    sides = [failed(Outcome.OUT_OF_MEMORY, planned=planned, batch=4) for planned in (True, False)]
    return Sweep("net", "60%", MACHINE, (Pair(4, *sides),))


@pytest.mark.parametrize("found", [sweep(), sweep(NASTY), _nothing_trained()], ids=["all", "nasty", "nothing trained"])
def test_sweeps(found: Sweep, tmp_path: Path) -> None:
    draw_peaks(found, tmp_path / "peaks.png")
    draw_latency(found, tmp_path / "latency.png")
    for path in tmp_path.iterdir():
        pixels = imread(path)
        assert (pixels[..., :3] < 0.9).any(axis=2).mean() > 0.003, path.name
    assert sweep_table(found).renderables


def test_policies_and_limits(tmp_path: Path) -> None:
    draw_policies(policies(NASTY), tmp_path / "policies.png")
    draw_largest(largest(NASTY), tmp_path / "largest.png")
    draw_largest(replace(largest(), trials=(), eager_need=None, planned_there=None), tmp_path / "none.png")
    for path in tmp_path.iterdir():
        assert (imread(path)[..., :3] < 0.9).any(axis=2).mean() > 0.003, path.name


def test_the_accounting_of_a_sweep_adds_up() -> None:
    good, infeasible, _ = sweep().pairs
    parts = good.accounting
    assert parts is not None
    known = parts.recompute + parts.pack + parts.unpack + parts.state + parts.program + parts.update
    assert known + parts.other == pytest.approx(parts.difference)
    assert parts.difference == 1.5
    assert parts.recompute == 1.0
    assert infeasible.accounting is None
    assert good.equal
    assert not replace(good, planned=replace(good.planned, losses=(1.0, 0.5, 0.2))).equal
