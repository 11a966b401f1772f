"""Training and planning work without the extras; what needs one says so in a sentence, before any long work."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowtide.cli import app
from lowtide.errors import MissingExtra
from lowtide.extras import EXTRAS, need

ROOT = Path(__file__).parent.parent

REFUSED = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(package for extra in EXTRAS.values() for package in extra)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""
"""As if none of the extras were installed."""

TRAINS = """
import torch
from torch import nn
import lowtide
from lowtide.models import ModelOptions, build, make_optimizer

training = build("mlp", 64, ModelOptions())
optimizer = make_optimizer("adam", training.model, 1e-3)
step = lowtide.train_step(training.model, optimizer, training.batch, loss=training.loss, budget="98%", time_limit=2)
before = next(training.model.parameters()).clone()
assert torch.isfinite(step(training.batch))
assert not torch.equal(before, next(training.model.parameters()))
assert "budget" in str(step)
lowtide.check(training.model, optimizer, training.batch, training.loss)
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", REFUSED + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("from lowtide.cli import main\nmain()", *arguments)


@pytest.mark.slow
def test_a_step_is_planned_and_trained_without_them() -> None:
    done = run(TRAINS)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_command_line_trains_and_plans_without_them(tmp_path: Path) -> None:
    trained = cli("train", "mlp", "--batch-size", "64", "--steps", "1", "--budget", "98%", "--time-limit", "2")
    assert trained.returncode == 0, trained.stderr
    problem = str(ROOT / "reports" / "bert-base" / "problem.json")
    out = tmp_path / "schedule.json"
    planned = cli("schedule", problem, "--budget", "95%", "--time-limit", "1", "--out", str(out))
    assert planned.returncode == 0, planned.stderr
    assert out.is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train bert-base --batch-size 2 --steps 1", "bert-base needs transformers: pip install 'lowtide[models]'"),
        ("train mlp --batch-size 2 --steps 1 --budget 90% --out OUT", "the picture memory.png of --out needs"),
        ("profile mlp --batch-size 2 --out OUT", "lowtide profile needs matplotlib and pillow and jinja2: "),
        ("sweep mlp --out OUT", "lowtide sweep needs"),
        ("largest mlp --memory-limit 1GiB --out OUT", "lowtide largest needs"),
        ("policies mlp --batch-size 2 --out OUT", "lowtide policies needs"),
        ("predictions REPORTS --out OUT", "lowtide predictions needs"),
        ("analysis REPORTS --out OUT.md", "lowtide analysis needs"),
        ("frontier REPORTS/bert-base/problem.json --out OUT", "lowtide frontier needs"),
        ("report REPORTS/bert-base --out OUT", "lowtide report needs"),
        ("animate profiler REPORTS/bert-base --out OUT.gif", "lowtide animate needs"),
        ("animate saved mlp --batch-size 2 --budget 90% --out OUT.gif", "lowtide animate needs"),
        ("bench budgets mlp --batch-size 2 --out OUT", "lowtide bench budgets needs"),
        ("bench swap mlp --batch-size 2 --out OUT", "lowtide bench swap needs"),
        ("bench planner --scaling 100 --out OUT", "lowtide bench planner --scaling needs"),
    ],
)
def test_what_needs_them_says_so_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, says: str
) -> None:
    monkeypatch.setattr("lowtide.extras._installed", lambda package: False)
    words = arguments.replace("OUT", str(tmp_path / "out")).replace("REPORTS", str(ROOT / "reports")).split()
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, MissingExtra)
    assert str(error).startswith(says)
    assert "\n" not in str(error)
    assert str(error).count("pip install 'lowtide[") == 1
    assert not list(tmp_path.iterdir())


def test_it_is_one_line_for_whoever_runs_it(tmp_path: Path) -> None:
    done = cli("report", str(ROOT / "reports" / "bert-base"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr == (
        "lowtide: lowtide report needs matplotlib and pillow and jinja2: pip install 'lowtide[reports]'\n"
    )


def test_where_all_is_installed_nothing_is_said() -> None:
    need("models", "this")
    need("reports", "this")


def test_one_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtra, match=r"^a picture needs pillow: pip install 'lowtide\[reports\]'$"):
        need("reports", "a picture")


def test_the_metadata_has_the_same_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, packages in EXTRAS.items():
        assert {line.partition(">")[0] for line in project["optional-dependencies"][extra]} == set(packages.values())
    assert "lowtide[models,reports]" in project["optional-dependencies"]["dev"]
