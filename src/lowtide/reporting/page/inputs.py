"""What a report can be made from: the files that lie in folders of `profile`, `train` and `frontier`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lowtide.errors import InputError
from lowtide.records.profile import Profile
from lowtide.records.step_plan import PlanFile, StepPlan
from lowtide.records.training_run import TrainingRun
from lowtide.reporting.frontier import CSV_NAME, FrontierPoint, read_frontier

PROFILE_NAME, PLAN_NAME, RUN_NAME = "profile.json", "plan.json", "training.json"
_READABLE = (PROFILE_NAME, PLAN_NAME, RUN_NAME, CSV_NAME)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SweepCase:
    """One batch size of a sweep, without and with a plan; None where it was not measured or did not fit."""

    model: str
    batch_size: int
    peak_before_B: int | None
    peak_after_B: int | None
    before_ms: float | None
    after_ms: float | None
    note: str = ""
    """Such as why there is no plan."""


@dataclass(frozen=True)
class ReportInputs:
    """Everything that was found; a page shows what is there."""

    profile: Profile | None = None
    plan: StepPlan | None = None
    """With accumulation: of the step that moves the parameters."""
    run: TrainingRun | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    sweep: tuple[SweepCase, ...] = ()


def read_inputs(folders: Sequence[Path]) -> ReportInputs:
    """What lies in `folders`; an InputError where there is nothing to show, or things that do not belong together."""
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder: give one that `lowtide profile` or `lowtide train --out` wrote")
    plans = _read(folders, PLAN_NAME, PlanFile.load)
    found = ReportInputs(
        profile=_read(folders, PROFILE_NAME, Profile.load),
        plan=None if plans is None else _moving(plans, folders),
        run=_read(folders, RUN_NAME, TrainingRun.load),
        frontier=_read(folders, CSV_NAME, read_frontier) or (),
    )
    if found == ReportInputs():
        where = ", ".join(map(str, folders))
        raise InputError(f"nothing to report in {where}: none of {', '.join(_READABLE)} is there")
    _check(found)
    return found


def _read(folders: Sequence[Path], name: str, load: Callable[[Path], T]) -> T | None:
    there = [folder / name for folder in folders if (folder / name).is_file()]
    if len(there) > 1:
        raise InputError(f"{there[0]} and {there[1]} are both there: a report is of one step, leave one folder out")
    return load(there[0]) if there else None


def _moving(plans: PlanFile, folders: Sequence[Path]) -> StepPlan:
    if not plans.plans:
        raise InputError(f"{PLAN_NAME} in {', '.join(map(str, folders))} holds no plan")
    return plans.plans[-1]


def _check(found: ReportInputs) -> None:
    """Refuse to draw things of different steps as one."""
    profile, plan, run = found.profile, found.plan, found.run
    if profile is not None and run is not None and profile.model != run.model:
        raise InputError(
            f"{PROFILE_NAME} is of {profile.model}, but {RUN_NAME} of {run.model}: a report is of one model"
        )
    batches = {
        PROFILE_NAME: None if profile is None else profile.batch,
        PLAN_NAME: None if plan is None else plan.step.batch,
        RUN_NAME: None if run is None else run.batch,
    }
    (first, batch), *others = [(name, batch) for name, batch in batches.items() if batch is not None] or [("", ())]
    for name, other in others:
        if other != batch:
            raise InputError(f"{first} is of the batch {'; '.join(batch)}, but {name} of {'; '.join(other)}")
    if plan is not None and run is not None and (run.plan is None or run.plan.budget_B != plan.budget):
        raise InputError(f"{PLAN_NAME} and {RUN_NAME} are of different runs: their budgets differ")
