"""What a step asks of Python's library and of the operating system: watched where that can be, refused otherwise."""

import datetime
import io
import logging
import os
import time
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.errors import CaptureError
from tests.watching.changing import train

NAME = "LOWTIDE_TEST_BETA"
Loss = Callable[[nn.Module, Any], Tensor]


def small() -> nn.Module:
    return nn.Linear(8, 4)


def capture(loss: Loss, **options: Any) -> None:
    model = small()
    lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 8), loss, **options)


@pytest.mark.parametrize(
    "loss",
    [
        lambda m, b: m(b).mean() * float(os.getenv(NAME, "1")),
        lambda m, b: m(b).mean() * float(os.path.expandvars(f"${NAME}")),
        lambda m, b: m(b).mean() * float(dict(os.environ)[NAME]),
    ],
)
def test_the_environment(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "0.5")
    train(lambda k, m: monkeypatch.setenv(NAME, str(0.5 * k)), loss, make=small, sentinel=False)


@pytest.mark.parametrize(
    "ask",
    [
        time.time,
        lambda: datetime.datetime.now().microsecond,
        lambda: uuid.uuid4().int % 7,
        lambda: Path("somewhere").exists(),
        lambda: Path.cwd().stat().st_mtime % 7,
    ],
    ids=["time", "now", "uuid", "exists", "stat"],
)
def test_what_has_another_answer_later(ask: Callable[[], float]) -> None:
    def loss(model: nn.Module, batch: Any) -> Any:
        value = ask() if ask is not time.time else time.time()
        return model(batch).mean() * value

    with pytest.raises(CaptureError, match=r"test_outside.py:\d+: the step asks for the time, for files or for"):
        capture(loss)
    capture(loss, side_effects="ignore")


def test_a_file_that_a_library_reads(tmp_path: Path) -> None:
    np.save(tmp_path / "scale.npy", np.array([0.5]))
    (tmp_path / "scale.txt").write_text("0.5")
    for read in (
        lambda: float(np.load(tmp_path / "scale.npy")[0]),
        lambda: float((tmp_path / "scale.txt").read_text()),
    ):
        with pytest.raises(CaptureError, match=r"test_outside.py:\d+: the step prints, or opens or writes a file"):
            capture(lambda m, b, read=read: m(b).mean() * read())  # type: ignore[misc]


def test_what_python_does_for_itself_is_none_of_the_users() -> None:
    """A record of `logging` has the time, a warning looks for its line in a file."""

    log = logging.Logger("somebody")
    log.addHandler(logging.StreamHandler(io.StringIO()))

    def loss(model: nn.Module, batch: Any) -> Any:
        log.info("here")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("there", stacklevel=1)
        return model(batch).mean()

    capture(loss)


def _seeds() -> Tensor:
    torch.manual_seed(3)
    return torch.rand(4)


def _forks() -> Tensor:
    with torch.random.fork_rng():
        return torch.rand(4)


@pytest.mark.parametrize("draw", [_seeds, _forks, lambda: torch.rand(4) * torch.initial_seed()])
@pytest.mark.parametrize("side_effects", ["refuse", "ignore"])
def test_the_state_of_torchs_generator(draw: Callable[[], Tensor], side_effects: str) -> None:
    with pytest.raises(CaptureError, match=r"test_outside.py:\d+: the step sets a random generator of torch's or"):
        capture(lambda m, b: (m(b) * draw()).mean(), side_effects=side_effects)
