"""A process that answers line by line, and one that is gone."""

from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.experiments.answering import Answering

MODULE = """
import os, signal, sys

for line in sys.stdin:
    print('{"said": "%s"}' % line.strip(), flush=True)
    if line.strip() == "die":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_was_killed_between_two_questions_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talks.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Answering("talks", tmp_path, "torch 0.5")
    assert child.ask("hello") == {"said": "hello"}
    assert child.ask("die") == {"said": "die"}
    child._process.wait()
    with pytest.raises(InputError, match=r"'torch 0.5' ended with exit code -9: the system killed it, most likely for"):
        child.ask("step")
    child.end()
