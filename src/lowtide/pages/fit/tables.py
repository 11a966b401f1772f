"""The tables of docs/fit.md, from the records that `make fits` wrote under reports/fit."""

from pathlib import Path
from statistics import median

from lowtide.experiments.public.record import PublicRuns
from lowtide.experiments.public.report import how, rate
from lowtide.fitting.calibration import Calibration
from lowtide.fitting.record import Fit
from lowtide.units import format_bytes, format_ms

_PUBLIC_HEAD = (
    "| run | device | how | memory: published | said | rate of a device: published | said | held back |",
    "|---|---|---|---|---|---|---|---|",
)
_PLANS_HEAD = (
    "| room | peak of the plan | time of the plan | at best, proven | tokens a second of a device |",
    "|---|---|---|---|---|",
)
_MISSING = "to be made: `make fits`"
_LONGEST_HEAD = ("| room | longest sample, selective checkpointing | with a plan |", "|---|---|---|")


def public_table(folder: Path) -> str:
    """Published runs: what was measured there, and what is said."""
    path = folder / "public" / "public.json"
    if not path.exists():
        return "\n".join([*_PUBLIC_HEAD, f"| {_MISSING} | | | | | | | |"])
    found = PublicRuns.load(path)
    rows = []
    for said in found.said:
        run, at, late = said.run, said.bytes_error, said.time_error
        memory = said.reserved_B + (run.context_MiB << 20)
        cells = (
            *(run.model, run.device, how(said)),
            *(("", "") if run.GiB is None else (f"{run.GiB} GiB", f"{memory / (1 << 30):.1f} GiB ({at:+.1%})")),
            *(
                ("", "")
                if late is None or run.per_second is None
                else (f"{rate(run.per_second)} {run.unit}", f"{rate(said.per_second)} ({late:+.0%})")
            ),
            "yes" if run.held_back else "no",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*_PUBLIC_HEAD, *rows])


def public_errors(folder: Path) -> str:
    """In a sentence: how many of the runs that were held back are how near."""
    path = folder / "public" / "public.json"
    if not path.exists():
        return _MISSING
    held = [said for said in PublicRuns.load(path).said if said.run.held_back]
    late = sorted(abs(said.time_error) for said in held if said.time_error is not None)
    sizes = sorted(abs(said.bytes_error) for said in held if said.bytes_error is not None)
    return (
        f"Of {len(late)} rates held back, {sum(x <= 0.2 for x in late)} are within 20 %, the median off by "
        f"{median(late):.0%}, the worst by {late[-1]:.0%}; of {len(sizes)} figures of memory held back, "
        f"{sum(x <= 0.05 for x in sizes)} are within 5 %, the median off by {median(sizes):.1%}, the worst by "
        f"{sizes[-1]:.1%}."
    )


def plans_table(folder: Path) -> str:
    """What plans need and cost in less and less room."""
    rows = []
    for fit in _by_room(folder / "8-plans"):
        cells = f"none: the least found is {format_bytes(fit.least_B or 0)} | | |"
        if fit.plan is not None:
            shares = f"{fit.plan.overhead:+.1%} | {fit.plan.bound:+.1%}"
            cells = f"{format_bytes(fit.plan.peak_B)} | {shares} | {_rate(fit, fit.plan.step_ms):,.0f}"
        rows.append(f"| {format_bytes(fit.budget_B)} | {cells} |")
    return "\n".join([*_PLANS_HEAD, *(rows or [f"| {_MISSING} | | | | |"])])


def longest_table(folder: Path) -> str:
    """The longest sample in less and less room."""
    rows = []
    for fit in _by_room(folder / "8-longest"):
        assert fit.largest_length is not None
        cells = " | ".join(f"{tokens or 0:,}" for tokens in (fit.largest_length.as_it_is, fit.largest_length.planned))
        rows.append(f"| {format_bytes(fit.budget_B)} | {cells} |")
    return "\n".join([*_LONGEST_HEAD, *(rows or [f"| {_MISSING} | | |"])])


def _by_room(folder: Path) -> list[Fit]:
    return sorted((Fit.load(path) for path in folder.glob("*.json")), key=lambda fit: -fit.budget_B)


def _rate(fit: Fit, step_ms: float) -> float:
    """Tokens a second."""
    return 1000 * fit.samples * fit.tokens / fit.tensor / step_ms


_KINDS_HEAD = (
    "| kind of op | ops | measured | by the rates alone | longer by | one op off by, corrected |",
    "|---|---|---|---|---|---|",
)
_STEPS_HEAD = (
    "| step | time: measured | by the rates alone | corrected by the other models | peak: measured | said |",
    "|---|---|---|---|---|---|",
)
CALIBRATION_NAME = "calibration.json"


def calibration_kinds(folder: Path) -> str:
    """Estimated times by kind of op, from the file that `make bench-fit` wrote into `folder`."""
    found = Calibration.load(folder / CALIBRATION_NAME)
    rows = [
        f"| {kind.kind} | {kind.ops:,} | {format_ms(kind.measured_ms)} | {format_ms(kind.estimated_ms)} "
        f"| x {kind.times(found.start_ms):.2f} | {kind.off:.0%} |"
        for kind in found.kinds
    ]
    return "\n".join([*_KINDS_HEAD, *rows])


def calibration_steps(folder: Path) -> str:
    """Whole steps, from the same file."""
    rows = [
        f"| {step.model} | {format_ms(step.measured_ms)} "
        f"| {format_ms(step.estimated_ms)} ({step.estimated_ms / step.measured_ms - 1:+.0%}) "
        f"| {format_ms(step.corrected_ms)} ({step.corrected_ms / step.measured_ms - 1:+.0%}) "
        f"| {format_bytes(step.measured_B)} | {format_bytes(step.said_B)} ({step.said_B / step.measured_B - 1:+.2%}) |"
        for step in Calibration.load(folder / CALIBRATION_NAME).steps
    ]
    return "\n".join([*_STEPS_HEAD, *rows])
