"""What a report can be made from: the files that lie in folders of `profile`, `train`, `frontier` and `sweep`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from lowtide.errors import InputError
from lowtide.experiments.case import Case, Outcome
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.records.profile import Profile
from lowtide.records.step_plan import PlanFile, StepPlan
from lowtide.records.training_run import TrainingRun
from lowtide.reporting.frontier import CSV_NAME, FrontierPoint, read_frontier

PROFILE_NAME, PLAN_NAME, RUN_NAME, SWEEP_NAME = "profile.json", "plan.json", "training.json", "sweep.json"
_READABLE = (PROFILE_NAME, PLAN_NAME, RUN_NAME, CSV_NAME, SWEEP_NAME)

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
    overhead: float | None
    """Median of the steps that ran beside each other."""
    note: str

    @classmethod
    def of(cls, model: str, pair: Pair) -> "SweepCase":
        """What the page shows of `pair`."""
        before, after = pair.plain, pair.planned
        said = [
            f"{which} a plan: {case.outcome.value}"
            for which, case in (("without", before), ("with", after))
            if case.outcome is not Outcome.TRAINED
        ]
        if pair.equal is not None:
            said.append("losses equal" if pair.equal else "LOSSES DIFFER")
        times = (_median_ms(before), _median_ms(after))
        return cls(model, pair.batch_size, before.peak_B, after.peak_B, *times, pair.overhead, ", ".join(said))


def _median_ms(case: Case) -> float | None:
    return median(case.ms) if case.ms else None


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
    sweep = _read(folders, SWEEP_NAME, Sweep.load)
    found = ReportInputs(
        profile=_read(folders, PROFILE_NAME, Profile.load),
        plan=None if plans is None else _moving(plans, folders),
        run=_read(folders, RUN_NAME, TrainingRun.load),
        frontier=_read(folders, CSV_NAME, read_frontier) or (),
        sweep=() if sweep is None else tuple(SweepCase.of(sweep.model, pair) for pair in sweep.pairs),
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
    models = {
        PROFILE_NAME: None if profile is None else profile.model,
        RUN_NAME: None if run is None else run.model,
        SWEEP_NAME: found.sweep[0].model if found.sweep else None,
    }
    _agree(models, "{first} is of {mine}, but {other} of {theirs}: a report is of one model")
    batches = {
        PROFILE_NAME: None if profile is None else profile.batch,
        PLAN_NAME: None if plan is None else plan.step.batch,
        RUN_NAME: None if run is None else run.batch,
    }
    lines = {name: None if batch is None else "; ".join(batch) for name, batch in batches.items()}
    _agree(lines, "{first} is of the batch {mine}, but {other} of {theirs}")
    if plan is not None and run is not None and (run.plan is None or run.plan.budget_B != plan.budget):
        raise InputError(f"{PLAN_NAME} and {RUN_NAME} are of different runs: their budgets differ")


def _agree(values: dict[str, str | None], message: str) -> None:
    """Refuse, in the words of `message`, where two files say different things."""
    there = {name: value for name, value in values.items() if value is not None}
    for first, mine in there.items():
        for other, theirs in there.items():
            if mine != theirs:
                raise InputError(message.format(first=first, mine=mine, other=other, theirs=theirs))
