"""How long it takes until a planned step is ready, measured beside eager steps of a copy."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from torch.optim import Optimizer

from lowtide.experiments.eager_training import EagerCopy
from lowtide.models.training import Training
from lowtide.training.train_step import train_step


@dataclass(frozen=True)
class Startup:
    """Seconds, all of them."""

    model: str
    stages: dict[str, float]
    """Of one call of `train_step`."""
    whole: float
    eager: tuple[float, ...]
    """Steps, the first left out."""
    guards: tuple[float, ...]
    """Before each step: are graph and plan still right?"""
    sentinel: float
    """One comparison with eager."""


def measure_startup(
    training: Training, optimizer: Optimizer, budget: str, policy: str, steps: int, say: Callable[[str], None]
) -> Startup:
    """Make a planned step, then take eager steps, look at the guards and compare once."""
    eager = EagerCopy(training.model, optimizer, training.loss)
    say("capture, profile and plan")
    began = perf_counter()
    step = train_step(
        training.model, optimizer, training.batch, training.loss, budget=budget, policy=policy, progress=False
    )
    whole = perf_counter() - began
    say("eager steps")
    times = [eager.step(training.batch)[1] / 1000 for _ in range(1 + steps)][1:]
    say("guards and a check")
    guards = [_seconds(lambda: step.is_ready_for(training.batch)) for _ in range(20)]
    step(training.batch)  # the first step is checked
    check = step.checks.seconds / step.checks.checks
    return Startup(training.name, step.seconds, whole, tuple(times), tuple(guards), check)


def _seconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
