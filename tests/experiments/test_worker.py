"""Cases in processes of their own, for real."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.experiments.case import Outcome
from lowtide.experiments.worker import ProcessWorker
from tests.experiments.workers import settings

MODEL = """
import os, signal
import torch
from torch import nn

def net(n):
    print("a model may print what it likes")
    return nn.Linear(4, 1), torch.randn(n, 4), lambda model, batch: model(batch).square().mean()

def killed(n):
    os.kill(os.getpid(), signal.SIGKILL)

def broken(n):
    os._exit(7)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path / "net.py"


@pytest.mark.slow
def test_it_trains_as_told_and_says_what_it_found(file: Path) -> None:
    with ProcessWorker(settings(model=f"{file}:net", planned=False, budget=None)) as worker:
        for word in ("step", "step", "op_by_op", "give_back"):
            worker.do(word)
        found = worker.end()
    assert found.outcome is Outcome.TRAINED
    assert len(found.losses) == 2
    assert len(found.ms) == 1
    assert found.peak_B is not None
    assert found.ops is not None


@pytest.mark.slow
def test_a_process_that_is_killed_ran_out_of_memory(file: Path) -> None:
    with ProcessWorker(settings(model=f"{file}:killed", planned=False)) as worker:
        assert worker.over
        worker.do("step")
        found = worker.end()
    assert found.outcome is Outcome.OUT_OF_MEMORY
    assert "killed" in (found.failure or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words"), [("nothing", "unknown model 'nothing'"), ("net.py:broken", "failed: it ended with exit code 7")]
)
def test_its_errors_are_told(model: str, words: str, file: Path) -> None:
    name = model.replace("net.py", str(file))
    with pytest.raises(InputError, match=words), ProcessWorker(settings(model=name, planned=False)):
        pass


EXPERIMENT = """
import os, signal, sys
from lowtide.experiments.worker import ProcessWorker
from tests.experiments.workers import settings

with ProcessWorker(settings(model=sys.argv[1], planned=False, budget=None)) as worker:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_folder_of_an_experiment_that_was_killed_goes(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", EXPERIMENT, f"{file}:net"], check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert [path.name[:13] for path in (tmp_path / "temporary").iterdir()] == ["lowtide-case-"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with ProcessWorker(settings(model=f"{file}:killed", planned=False)) as worker:
        assert worker.over
    assert list((tmp_path / "temporary").iterdir()) == []
