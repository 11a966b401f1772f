"""A sweep over batch sizes, which can be interrupted: a finished batch size is not run again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lowtide.errors import InputError
from lowtide.experiments.case import Case, CaseSettings
from lowtide.experiments.pair import Start, Tell, run_pair
from lowtide.experiments.sweep.record import Pair
from lowtide.experiments.worker import ProcessWorker

CASES = "cases"
"""The folder for what each case found."""


def both(planned: CaseSettings) -> tuple[CaseSettings, CaseSettings]:
    """The case with a plan, and the one without that it is compared with."""
    return planned, replace(planned, planned=False, budget=None, policy="", time_limit=None)


def case_files(folder: Path, batch_size: int) -> tuple[Path, Path]:
    """Where the two cases of a batch size are written."""
    return folder / CASES / f"batch{batch_size}-with.json", folder / CASES / f"batch{batch_size}-without.json"


def finished(folder: Path, wanted: Sequence[CaseSettings]) -> dict[int, Pair]:
    """The batch sizes of `wanted` that were measured already; InputError where a file there is of other settings."""
    found = {}
    for settings in wanted:
        size = settings.batch_size
        files = case_files(folder, size)
        cases = [Case.load(path) if path.exists() else None for path in files]
        for path, case, now in zip(files, cases, both(settings), strict=True):
            if case is not None and case.settings != now:
                raise InputError(
                    f"{path} was measured with other settings ({difference(case.settings, now)}); give another "
                    "folder, or --force to measure anew"
                )
        planned, plain = cases
        if planned is not None and plain is not None and planned.run == plain.run:
            found[size] = Pair(size, planned, plain)
    return found


def difference(mine: CaseSettings, other: CaseSettings) -> str:
    """The first setting that is not the same, in a few words."""
    for name in CaseSettings.__slots__:
        if getattr(mine, name) != getattr(other, name):
            return f"{name} {getattr(mine, name)}, now {getattr(other, name)}"
    return "none differs"


def run_size(folder: Path, planned: CaseSettings, tell: Tell, *, start: Start = ProcessWorker) -> Pair:
    """Both cases of one batch size, measured and written."""
    cases = run_pair(*both(planned), tell, start=start)
    (folder / CASES).mkdir(exist_ok=True)
    for case, path in zip(cases, case_files(folder, planned.batch_size), strict=True):
        case.save(path)
    return Pair(planned.batch_size, *cases)
