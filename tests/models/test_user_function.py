import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.models import ModelOptions, build

SOURCE = """
import torch
from sizes_beside_it import WIDTH

def good(n):
    return torch.nn.Linear(WIDTH, 1), torch.randn(n, WIDTH), lambda model, batch: model(batch).sum()

def pair(n):
    return torch.nn.Linear(WIDTH, 1), torch.randn(n, WIDTH)

def fails(n):
    inner = {}
    return inner["missing"]

def in_torch(n):
    return torch.nn.Linear(3, 1)(torch.randn(n, 4))

def alone(n): return torch.nn.Linear(1, 1)
def four(n): return 1, 2, 3, 4
def no_model(n): return "model", torch.randn(n)
def no_loss(n): return torch.nn.Linear(1, 1), torch.randn(n), 3
def without_argument(): return None
number = 3
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "sizes_beside_it.py").write_text("WIDTH = 3\n")
    (tmp_path / "own.py").write_text(SOURCE)
    before = set(sys.modules)
    yield "own.py"
    for name in set(sys.modules) - before:
        if name in ("own", "lowtide_user_own", "sizes_beside_it"):
            del sys.modules[name]


def test_from_a_file_and_from_a_module(file: str) -> None:
    training = build(f"{file}:good", 5)
    assert training.name == "own.py:good"
    assert training.batch.shape == (5, 3)
    assert training.loss is not None
    assert build("own:pair", 2).loss is None
    assert build(f"{Path.cwd() / file}:pair", 2).name == "own.py:pair"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"own.py:fails failed at own.py:13: KeyError: 'missing'$"),
        ("in_torch", r"own.py:in_torch failed at own.py:16: RuntimeError: mat1 and mat2"),
        ("absent", "own.py has no function 'absent'"),
        ("number", "'number' in own.py is no function but int"),
        ("alone", r"returned Linear: it must return \(model, batch\)"),
        ("four", "returned a tuple of 4"),
        ("no_model", "returned str as the model"),
        ("no_loss", "returned int as the loss"),
        ("without_argument", "must be a function of the batch size alone"),
        ("", "names no function"),
    ],
)
def test_one_clear_sentence(file: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build(f"{file}:{name}", 2)
    assert "\n" not in str(caught.value)


def test_files_and_modules_that_cannot_be_loaded(file: str) -> None:
    with pytest.raises(InputError, match=r"there is no file absent\.py"):
        build("absent.py:f", 2)
    with pytest.raises(InputError, match=r"module absent.own cannot be imported: ModuleNotFoundError"):
        build("absent.own:f", 2)
    Path("broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(InputError, match=r"broken.py cannot be imported at .*broken.py:2: SyntaxError"):
        build("broken.py:f", 2)
    Path("leaves.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(InputError, match=r"leaves.py cannot be imported at leaves.py:2: SystemExit: 3"):
        build("leaves.py:f", 2)
    Path("text.txt").write_text("")
    with pytest.raises(InputError, match=r"must end in .py"):
        build("./text.txt:f", 2)


def test_sizes_are_the_functions_own(file: str) -> None:
    with pytest.raises(InputError, match=r"--dropout does not apply to own.py:good, whose function decides all sizes"):
        build(f"{file}:good", 2, ModelOptions(dropout=0.1))
