"""A sweep over batch sizes, which can be interrupted: a finished batch size is not run again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lowtide.errors import InputError
from lowtide.experiments.pair import Start, Tell, run_pair
from lowtide.experiments.worker import ProcessWorker
from lowtide.records.case import Case, CaseSettings
from lowtide.records.sweep import Pair

CASES = "cases"
"""The folder for what each case found."""


def settings_of(first: CaseSettings, batch_size: int) -> tuple[CaseSettings, CaseSettings]:
    """The case with a plan and the one without, at this batch size; `first` has everything else."""
    planned = replace(first, batch_size=batch_size, planned=True)
    return planned, replace(planned, planned=False, budget=None, policy="", time_limit=None)


def case_files(folder: Path, batch_size: int) -> tuple[Path, Path]:
    """Where the two cases of a batch size are written."""
    return folder / CASES / f"batch{batch_size}-with.json", folder / CASES / f"batch{batch_size}-without.json"


def finished(folder: Path, first: CaseSettings, batch_sizes: Sequence[int]) -> dict[int, Pair]:
    """The batch sizes that were measured already; InputError where a file there is of other settings."""
    found = {}
    for size in batch_sizes:
        files = case_files(folder, size)
        cases = [Case.load(path) if path.exists() else None for path in files]
        for path, case, wanted in zip(files, cases, settings_of(first, size), strict=True):
            if case is not None and case.settings != wanted:
                raise InputError(
                    f"{path} was measured with other settings ({difference(case.settings, wanted)}); give another "
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


def run_size(folder: Path, first: CaseSettings, batch_size: int, tell: Tell, *, start: Start = ProcessWorker) -> Pair:
    """Both cases of one batch size, measured and written."""
    cases = run_pair(*settings_of(first, batch_size), tell, start=start)
    (folder / CASES).mkdir(exist_ok=True)
    for case, path in zip(cases, case_files(folder, batch_size), strict=True):
        case.save(path)
    return Pair(batch_size, *cases)
