"""`lowtide sweep`: files, resuming, cases that fail, and what is refused. Cases run in this process, but for one."""

import csv
import os
from functools import partial
from pathlib import Path

import pytest

from lowtide.cli import sweep as command
from lowtide.experiments import pair
from lowtide.experiments.case import CaseSettings, Outcome
from lowtide.experiments.pair import Tell
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.experiments.sweep.report import COLUMNS
from lowtide.experiments.sweep.run import run_size
from tests.cli.running import run_main
from tests.experiments.workers import Inside, Pretenders

MODEL = """
import torch
from torch import nn

def net(n):
    if n > 1000:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(16, 16), nn.GELU())), nn.Linear(16, 1))
    return model, torch.randn(n, 16), lambda model, batch: model(batch).square().mean()
"""
QUICK = ("--time-limit", "1", "--steps", "2", "--op-runs", "1", "--optimizer", "sgd")


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(MODEL)
    return f"{tmp_path / 'net.py'}:net"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases train in this process."""
    monkeypatch.setattr(command, "run_size", partial(run_size, start=Inside))
    monkeypatch.setattr(pair, "SETTLE", 0.0)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cases only pretend to train; the batch sizes that were run."""
    sizes: list[int] = []

    def run(out: Path, planned: CaseSettings, tell: Tell) -> Pair:
        sizes.append(planned.batch_size)
        return run_size(out, planned, tell, start=Pretenders())

    monkeypatch.setattr(command, "run_size", run)
    monkeypatch.setattr(pair, "SETTLE", 0.0)
    return sizes


@pytest.mark.slow
def test_everything_is_written_and_failed_cases_are_results(
    net: str, inside: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    sizes, budgets = "32,2000,64", "1KiB,70%,70%"
    words = ("sweep", net, "--batch-sizes", sizes, "--budget", budgets, *QUICK, "--out", out)
    assert run_main(monkeypatch, *words) == 0
    said = capsys.readouterr()
    assert "batch size 32, with a plan: no plan can fit the step into 1.00 KiB" in " ".join(said.out.split())
    assert "batch size 2000, without a plan: not enough memory" in said.out
    assert "left" in said.err
    assert {path.name for path in out.iterdir()} == {*command.NAMES, "cases"}
    found = Sweep.load(out / "sweep.json")
    assert [p.batch_size for p in found.pairs] == [32, 2000, 64]
    infeasible, too_large, good = found.pairs
    assert good.equal
    assert good.reduction is not None
    assert 0.29 < good.reduction < 0.6
    assert good.accounting is not None
    assert infeasible.planned.outcome is Outcome.INFEASIBLE
    assert infeasible.plain.outcome is Outcome.TRAINED
    assert infeasible.equal is None
    assert too_large.planned.outcome is too_large.plain.outcome is Outcome.OUT_OF_MEMORY
    with (out / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert int(rows[2]["peak_with_B"]) == good.planned.peak_B
    assert float(rows[2]["difference_ms"]) == pytest.approx(good.accounting.difference)
    assert sum(int(rows[2][f"with_{part}_B"]) for part in ("parameter", "activation", "gradient", "other")) > 0
    assert rows[2]["losses_equal"] == "1"
    assert rows[2]["swapped_activations"] == "0"
    assert rows[0]["peak_with_B"] == ""
    assert rows[0]["peak_without_B"] != ""


def test_an_interrupted_sweep_goes_on_where_it_was(
    net: str, ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ("sweep", net, "--batch-sizes", "8,16", "--budget", "70%", *QUICK, "--out", out)
    honest = vars(command)["run_size"]

    def interrupted(out: Path, planned: CaseSettings, tell: Tell) -> Pair:
        if planned.batch_size == 16:
            raise KeyboardInterrupt
        found: Pair = honest(out, planned, tell)
        return found

    monkeypatch.setattr(command, "run_size", interrupted)
    assert run_main(monkeypatch, *words) == 130
    assert sorted(path.name for path in out.rglob("*.*")) == ["batch8-with.json", "batch8-without.json"]
    monkeypatch.setattr(command, "run_size", honest)
    assert run_main(monkeypatch, *words) == 0
    assert ran == [8, 16]
    assert "not run again: batch size 8" in capsys.readouterr().err
    first = (out / "sweep.csv").read_text()
    assert run_main(monkeypatch, *words) == 0, "a finished sweep is only written anew"
    assert ran == [8, 16]
    assert (out / "sweep.csv").read_text() == first


def test_half_a_pair_and_other_settings_are_no_results(
    net: str, ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ("sweep", net, "--batch-sizes", "8", "--budget", "70%", *QUICK, "--out", out)
    assert run_main(monkeypatch, *words) == 0
    (out / "cases" / "batch8-without.json").unlink()
    assert run_main(monkeypatch, *words, "--force") == 0
    (out / "cases" / "batch8-without.json").unlink()
    (out / "sweep.json").unlink()
    assert ran == [8, 8]
    assert run_main(monkeypatch, *words, "--steps", "3") == 2
    assert "other settings (steps 2, now 3)" in capsys.readouterr().err
    Path(net.rpartition(":")[0]).write_text(MODEL + "\n# changed\n")
    assert run_main(monkeypatch, *words) == 2
    assert "other settings (source" in capsys.readouterr().err
    assert ran == [8, 8]
    assert run_main(monkeypatch, *words, "--force") == 0
    assert ran == [8, 8, 8]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mlp", "--batch-sizes", "4,0"), "--batch-sizes takes different numbers from 1 up"),
        (("mlp", "--batch-sizes", "4,4"), "--batch-sizes takes different numbers"),
        (("mlp", "--batch-sizes", "4,many"), "--batch-sizes takes whole numbers such as 4,8,16, not '4,many'"),
        (("mlp", "--batch-sizes", ""), "--batch-sizes takes whole numbers"),
        (("mlp", "--budget", "much"), "'much' is no size"),
        (("mlp", "--budget", "60%,50%"), "one for each of the 5 batch sizes"),
        (("mlp", "--steps", "0"), "must be at least 1"),
        (("mlp", "--policy", "best"), "there is no policy 'best'"),
        (("bert", "--batch-sizes", "1"), "unknown model 'bert'"),
        (("mlp", "--batch-sizes", "1", "--seq-len", "3"), "--seq-len does not apply to mlp"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    words: tuple[str, ...],
    message: str,
    inside: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_main(monkeypatch, "sweep", *words, "--out", tmp_path / "new" / "out") == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("lowtide: ")
    assert message in last
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run_main(monkeypatch, "sweep", "mlp", "--out", tmp_path / "file") == 2
    assert "is a file" in capfd.readouterr().err
    assert run_main(monkeypatch, "sweep", "mlp", "--out", tmp_path / "file" / "out") == 2
    assert "cannot write into" in capfd.readouterr().err
    assert ran == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_without_permission_is_refused(
    ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o500)
    assert run_main(monkeypatch, "sweep", "mlp", "--out", tmp_path / "out") == 2
    assert ran == []


@pytest.mark.slow
def test_each_case_has_a_process_of_its_own(net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("sweep", net, "--batch-sizes", "64", "--budget", "70%", *QUICK, "--out", tmp_path / "out")
    assert run_main(monkeypatch, *words) == 0
    (found,) = Sweep.load(tmp_path / "out" / "sweep.json").pairs
    assert found.equal
    assert len(found.ratios) == 2
