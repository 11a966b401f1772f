"""One case of an experiment: a model and a batch size, trained some steps with or without a plan, in one process."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lowtide.experiments.machine import Machine
from lowtide.experiments.op_times import OpTimes
from lowtide.records.codec import Saved
from lowtide.records.step_plan import StepPlan
from lowtide.records.training_run import Amount, PlanFigures


class Outcome(StrEnum):
    """How a case ended; each is a result."""

    TRAINED = "trained"
    OUT_OF_MEMORY = "out of memory"
    INFEASIBLE = "infeasible"
    """No plan fits the budget."""


class Turns(StrEnum):
    """How the case with a plan and the case without one were run beside each other."""

    STEP_BY_STEP = "step by step"
    """Both processes alive, a step of one, then a step of the other."""
    GIVING_BACK = "step by step, free memory given back between steps"
    """Both alive, but both peaks do not fit: what the allocator keeps goes back to the system after each step."""
    ONE_AFTER_ANOTHER = "one after another"
    """One process at a time: times are of different minutes."""
    ALONE = "alone"
    """There was nothing to compare with."""


@dataclass(frozen=True, slots=True)
class CaseSettings(Saved):
    """Everything that decides what a case measures; a case whose settings are equal need not be run again."""

    FORMAT = "lowtide-case-settings/1"

    model: str
    """As on the command line."""
    source: str
    """Hash of the user's own file; empty for reference models and modules."""
    batch_size: int
    planned: bool
    budget: str | None
    """Of the planned: bytes or a share of the unplanned peak; None is what `memory_limit_B` leaves."""
    policy: str
    time_limit: float | None
    """Seconds of planning."""
    steps: int
    """Measured steps."""
    warmup: int
    """Steps before them."""
    op_runs: int
    """Op-by-op runs after them."""
    image_size: int | None
    seq_len: int | None
    dropout: float | None
    optimizer: str
    lr: float
    seed: int
    memory_limit_B: int | None
    """A cap on the process by the operating system."""
    machine: Machine


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one role at the peak."""

    role: str
    """A role, or `workspace`."""
    bytes: int


@dataclass(frozen=True, slots=True)
class Activations:
    """What a plan does with the activations."""

    kept: Amount
    recomputed: Amount
    packed: Amount
    swapped: Amount

    @classmethod
    def of(cls, plan: StepPlan) -> "Activations":
        """The fates that `plan` gives them."""
        return cls(**{what: Amount.of(sizes) for what, sizes in plan.fate_sizes.items()})


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """Of a case with a plan."""

    figures: PlanFigures
    activations: Activations
    predicted_ms: float
    """Of a step, by the simulator, from measured op times."""
    unplanned_ms: float
    """The same of the step as captured."""


@dataclass(frozen=True)
class Case(Saved):
    """What one case came to. Figures are empty or None where it did not get that far."""

    FORMAT = "lowtide-case/1"

    settings: CaseSettings
    run: str
    """The two cases of one run were measured beside each other."""
    turns: Turns
    outcome: Outcome
    failure: str | None
    model: str
    batch: tuple[str, ...]
    optimizer: str
    device: str
    threads: int
    memory_source: str
    base_B: int | None
    """Under a memory limit: what Python and its libraries take of it."""
    startup_s: float
    """Building, and with a plan capturing, measuring and planning."""
    losses: tuple[float | None, ...]
    """Of every step, warm-up included; None where not finite."""
    ms: tuple[float, ...]
    """Of the measured steps."""
    peak_B: int | None
    """The highest of all steps, by the allocator, residents included."""
    parts: tuple[Part, ...]
    """What the peak of the op-by-op runs is made of; without a plan they are of the captured step."""
    ops: OpTimes | None
    """Op by op: of the planned step, or of the captured one."""
    plan: PlannedCase | None


def source_hash(model: str) -> str:
    """Hash of the file in `path/to/file.py:function`, or of a config.json, which tells whether the user's model has
    changed since it was measured; empty for models by name, modules, and where there is no file."""
    path = Path(model if model.endswith(".json") else model.rpartition(":")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
