"""A module that runs in a process of its own and answers every line with one of JSON."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

from lowtide.errors import InputError


class Answering:
    """`python -m module settings`, called `name` where it fails."""

    def __init__(self, module: str, settings: Path, name: str) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the parent, which ends its processes in order
        )

    def ask(self, word: str) -> dict[str, Any]:
        """What it answers to `word`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone, which the answer says
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            why = "the system killed it, most likely for want of memory" if code == -SIGKILL else "see above"
            raise InputError(f"the process of the kind {self._name!r} ended with exit code {code}: {why}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """Gone, whatever happened."""
        self._process.kill()
        self._process.communicate()
