"""A case in a process of its own, which does one thing at a time when told."""

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Protocol

from lowtide.errors import InputError
from lowtide.experiments.case import Case, CaseSettings, Outcome, Turns
from lowtide.files import owned_prefix


class Worker(Protocol):
    """Runs a case; the parent says when it takes a step."""

    over: bool
    """It has failed, and how is its result."""
    peaks: tuple[int, int] | None
    """Bytes that its step takes with the plan and without it; None where nothing is planned."""

    def __enter__(self) -> "Worker":
        """Start; returns when everything before the first step is done."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Gone, whatever happened."""

    def do(self, word: str) -> None:
        """`step`, `op_by_op` or `give_back`; returns when it is done."""

    def end(self) -> Case:
        """What was found."""


class ProcessWorker:
    """`lowtide case` in a process of its own: its memory is its own, and is all given back when it ends."""

    def __init__(self, settings: CaseSettings) -> None:
        self._settings = settings
        self.over = False
        self.peaks: tuple[int, int] | None = None
        self._killed = False

    def __enter__(self) -> "ProcessWorker":
        """Start; returns when everything before the first step is done."""
        self._folder = tempfile.TemporaryDirectory(prefix=owned_prefix(Path(tempfile.gettempdir()), "lowtide-case-"))
        settings, self._result = (Path(self._folder.name) / name for name in ("settings.json", "result.json"))
        self._settings.save(settings)
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lowtide", "case", str(settings), str(self._result)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the parent, which ends its processes in order
        )
        try:
            self._answer()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The process is gone, whatever happened."""
        self._close()

    def do(self, word: str) -> None:
        """`step`, `op_by_op` or `give_back`; returns when it is done."""
        if not self.over:
            self._tell(word)
            self._answer()

    def end(self) -> Case:
        """What was found."""
        if self._killed:
            return killed_case(self._settings)
        self._tell("end")
        self._answer()
        return killed_case(self._settings) if self._killed else Case.load(self._result)

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it is gone, and _answer finds out why
            return

    def _answer(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            answer = json.loads(line)
            self.over = answer["over"]
            self.peaks = self.peaks if answer["peaks"] is None else tuple(answer["peaks"])
            return
        code = self._process.wait()
        if code != -signal.SIGKILL:
            raise InputError(self._last_words(code))
        self.over = self._killed = True

    def _last_words(self, code: int) -> str:
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"it ended with exit code {code} and said nothing"
        if last.startswith("lowtide: "):
            return last.removeprefix("lowtide: ")
        return f"{self._settings.model} at batch size {self._settings.batch_size} failed: {last}"

    def _close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # a word that was never read
                    continue
        self._said.close()
        self._folder.cleanup()


def killed_case(settings: CaseSettings) -> Case:
    """A case whose process the system killed, which it does where memory runs out."""
    return Case(
        settings=settings,
        run="",
        turns=Turns.ALONE,
        outcome=Outcome.OUT_OF_MEMORY,
        failure="the system killed the process, as it does where memory runs out",
        model=settings.model,
        batch=(),
        optimizer=settings.optimizer,
        device="",
        threads=0,
        memory_source="",
        base_B=None,
        startup_s=0.0,
        losses=(),
        ms=(),
        peak_B=None,
        parts=(),
        ops=None,
        plan=None,
    )
