"""`lowtide case`: one case of an experiment in this process, told over stdin what to do next.

Experiments start it, one process for each case; the words are those of `lowtide.experiments.worker`.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, TextIO

import typer

from lowtide.experiments.case import CaseSettings

_EXPENDABLE = Path("/proc/self/oom_score_adj")


def case(
    settings: Annotated[Path, typer.Argument(help="A lowtide-case-settings file.")],
    result: Annotated[Path, typer.Argument(help="Where to write what was found.")],
) -> None:
    """Run one case of an experiment, as told over stdin: step, op_by_op, give_back, end."""
    wanted = CaseSettings.load(settings)
    answers = _own_stdout()
    _die_first()
    from lowtide.device.process import warm_memory

    # What plans are compared with; a limit on the process leaves no room to keep memory in.
    is_control = not wanted.planned and wanted.memory_limit_B is None
    with warm_memory() if is_control else nullcontext():
        _run(wanted, answers, result)


def _run(wanted: CaseSettings, answers: TextIO, result: Path) -> None:
    from lowtide.experiments.case_run import CaseRun

    run = CaseRun(wanted)
    run.begin()
    _answer(answers, over=run.over, peaks=run.peaks)
    for line in sys.stdin:
        word = line.strip()
        if word == "end":
            run.end().save(result)
            _answer(answers, over=True)
            return
        {"step": run.step, "op_by_op": run.op_by_op, "give_back": run.give_back}[word]()
        _answer(answers, over=run.over)


def _own_stdout() -> TextIO:
    """stdout for the answers alone: what a model prints goes to stderr from now on."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _die_first() -> None:
    """Where the machine runs out of memory, this process goes, not somebody else's."""
    if _EXPENDABLE.exists():
        _EXPENDABLE.write_text("1000", encoding="ascii")


def _answer(answers: TextIO, *, over: bool, peaks: tuple[int, int] | None = None) -> None:
    answers.write(json.dumps({"over": over, "peaks": peaks}) + "\n")
    answers.flush()
