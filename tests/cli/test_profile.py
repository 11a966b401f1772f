import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.cli.profile import PROBLEM
from lowtide.planning.problem_file import load_problem
from lowtide.records.profile import Profile
from lowtide.reporting.profile_files import PROFILE_FILES
from tests.cli.running import run_main

TINY = """
import torch

def tiny(n):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return model, torch.randn(n, 4), lambda model, batch: model(batch).sum()
"""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    (tmp_path / "tiny.py").write_text(TINY)
    return f"{tmp_path / 'tiny.py'}:tiny"


def test_measures_writes_and_tells(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "out"
    assert (
        run_main(monkeypatch, "profile", tiny, "--batch-size", "3", "--runs", "1", "--budget", "60%", "--out", out) == 0
    )
    assert {path.name for path in out.iterdir()} == {*PROFILE_FILES, PROBLEM}
    profile = Profile.load(out / "profile.json")
    problem = load_problem(out / PROBLEM)
    assert problem.name == profile.model
    assert 0 < problem.base_time <= sum(op.runtime_ms for op in profile.ops)
    assert problem.resident_bytes >= profile.resident_B
    assert (profile.model, profile.runs) == ("tiny.py:tiny", 1)
    told = capfd.readouterr().out
    assert f"{profile.peak_B:,} bytes" in told
    assert all(name in told for name in (*PROFILE_FILES, PROBLEM))


def test_without_a_folder_the_summary_alone(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_main(monkeypatch, "profile", tiny, "--runs", "1") == 0
    told = capfd.readouterr().out
    assert "What the peak is made of" in told
    assert "Written" not in told
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["tiny.py"]
    assert run_main(monkeypatch, "profile", tiny, "--budget", "60%") == 2
    assert "give a folder" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["profile", "train"])
def test_what_is_left_out_hides_no_mistake(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, command, "no_such_model") == 2
    assert "no_such_model" in capfd.readouterr().err


@pytest.mark.slow
def test_results_are_not_overwritten_without_force(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile.json").write_text("precious")
    words = (tiny, "--batch-size", "3", "--runs", "1", "--optimizer", "sgd", "--out", tmp_path)
    assert run_main(monkeypatch, "profile", *words) == 2
    assert capfd.readouterr().err == (
        f"lowtide: {tmp_path} already holds results (profile.json); give another folder or --force\n"
    )
    assert (tmp_path / "profile.json").read_text() == "precious"
    assert run_main(monkeypatch, "profile", *words, "--force") == 0
    assert Profile.load(tmp_path / "profile.json").optimizer == "SGD, fused"
    assert {path.name for path in tmp_path.iterdir()} >= {*PROFILE_FILES, "tiny.py"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bert", "--batch-size", "1"), "unknown model 'bert'"),
        (("mlp", "--batch-size", "0"), "batch size must be at least 1"),
        (("mlp", "--batch-size", "2", "--runs", "0"), "--runs must be at least 1"),
        (("mlp", "--batch-size", "2", "--budget", "many"), "'many' is no size"),
        (("mlp", "--batch-size", "2", "--image-size", "64"), "--image-size does not apply to mlp"),
        (("mlp", "--batch-size", "2", "--optimizer", "best"), "unknown optimizer 'best'"),
        (("mlp", "--batch-size", "2000000000"), "not enough memory for batch size 2000000000"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_main(monkeypatch, "profile", *words, "--out", tmp_path / "new" / "out") == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("lowtide: ")
    assert message in last
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left on device"), 2)], ids=["Ctrl-C", "full"]
)
def test_an_interrupted_run_leaves_nothing(
    error: BaseException, code: int, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("lowtide.reporting.style.FigureCanvasAgg", fails)
    out = tmp_path / "out"
    assert run_main(monkeypatch, "profile", tiny, "--batch-size", "3", "--runs", "1", "--out", out) == code
    assert not out.exists()
    out.mkdir()
    (out / "profile.json").write_text("precious")
    assert run_main(monkeypatch, "profile", tiny, "--batch-size", "3", "--runs", "1", "--out", out, "--force") == code
    assert [path.read_text() for path in out.iterdir()] == ["precious"]


def test_an_unwritable_folder_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run_main(monkeypatch, "profile", "mlp", "--batch-size", "1", "--out", tmp_path / "file" / "out") == 2
    assert "cannot write into" in capfd.readouterr().err
    assert run_main(monkeypatch, "profile", "mlp", "--batch-size", "1", "--out", tmp_path / "file") == 2
    assert "is a file" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    assert run_main(monkeypatch, "profile", "mlp", "--batch-size", "1", "--out", tmp_path / "out") == 2


def test_help_does_not_load_torch() -> None:
    code = "import lowtide.cli, sys; sys.exit(any(m in sys.modules for m in ('torch', 'matplotlib', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
