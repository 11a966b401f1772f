"""Estimates against measured steps: the same models, each op's estimate beside its measured time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from torch import nn
from torch.optim import Optimizer

from lowtide.fitting.calibration import Calibration, KindError, StepError
from lowtide.fitting.devices import this_machine
from lowtide.models import Training
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import estimate, kind_of
from lowtide.profiling.problem import problem_of
from lowtide.profiling.profile import profile
from lowtide.records.profile import Profile
from lowtide.records.step_plan import AS_IT_IS
from lowtide.tracing.capture import capture

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Step:
    name: str
    said_B: int
    measured: Profile
    estimated: Profile


def calibrate(
    trainings: Sequence[Training], optimizer: Callable[[nn.Module], Optimizer], *, runs: int, say: Progress
) -> Calibration:
    """Measure every training step and compare; the machine's rates are measured before."""
    device = this_machine()
    steps = []
    for training in trainings:
        say(f"{training.name}: capture and measure")
        graph = capture(training.model, optimizer(training.model), training.batch, training.loss)
        estimated = estimate(graph, device.rates)
        late = problem_of(graph, estimated, allowed=AS_IT_IS)
        said = simulate(late.problem, late.problem.program).peak - late.states_B
        steps.append(_Step(training.name, said, profile(graph, runs=runs), estimated))
    start = device.rates.start_ms
    return Calibration(
        machine=device.name,
        memory_B=device.memory_B,
        bytes_per_ms=device.rates.bytes_per_ms,
        flops_per_ms=device.rates.flops_per_ms["float32"],
        start_ms=start,
        kinds=_kinds(steps, start),
        steps=tuple(_step(step, _factors(steps, start, but=step), start) for step in steps),
    )


def _pairs(step: _Step) -> list[tuple[str, float, float]]:
    """Kind, measured and estimated time of every op that is more than a view."""
    pairs = zip(step.measured.ops, step.estimated.ops, strict=True)
    return [(kind_of(op.op), op.runtime_ms, guess.runtime_ms) for op, guess in pairs if not op.is_view]


def _factors(steps: Sequence[_Step], start: float, *, but: _Step) -> dict[str, float]:
    """By kind, how much longer ops take than their estimate, without `but`, unless it is the only one."""
    others = [step for step in steps if step is not but] or list(steps)
    sums: dict[str, list[float]] = {}
    for kind, measured, guess in (pair for step in others for pair in _pairs(step)):
        known = sums.setdefault(kind, [0.0, 0.0])
        known[0] += max(0.0, measured - start)
        known[1] += guess - start
    return {kind: a / b for kind, (a, b) in sums.items() if a > 0 and b > 0}


def _step(step: _Step, factors: dict[str, float], start: float) -> StepError:
    corrected = sum(start + factors.get(kind, 1.0) * (guess - start) for kind, _, guess in _pairs(step))
    return StepError(
        model=step.name,
        batch=", ".join(line.removesuffix(" on cpu") for line in step.measured.batch),
        measured_ms=step.measured.step_ms,
        estimated_ms=step.estimated.step_ms,
        corrected_ms=corrected,
        measured_B=step.measured.step_peak_B,
        said_B=step.said_B,
    )


def _kinds(steps: Sequence[_Step], start: float) -> tuple[KindError, ...]:
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for step in steps:
        factors = _factors(steps, start, but=step)
        for kind, measured, guess in _pairs(step):
            corrected = start + factors.get(kind, 1.0) * (guess - start)
            rows.setdefault(kind, []).append((measured, guess, corrected))
    return tuple(
        KindError(
            kind=kind,
            ops=len(each),
            measured_ms=sum(measured for measured, _, _ in each),
            estimated_ms=sum(guess for _, guess, _ in each),
            off=median(abs(corrected / measured - 1) for measured, _, corrected in each if measured > 0),
        )
        for kind, each in sorted(rows.items(), key=lambda row: -sum(measured for measured, _, _ in row[1]))
    )
