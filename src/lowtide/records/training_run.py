"""What `lowtide train` did: every step, the plan in figures, and what eager training took beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """One call of the step, and its eager twin where there was one. Peaks count the residents."""

    loss: float | None
    """None where it was not finite."""
    ms: float
    peak_B: int | None
    """None where nothing measured it: torch.profiler is too slow for every step."""
    eager_ms: float | None
    eager_peak_B: int | None


@dataclass(frozen=True, slots=True)
class Amount:
    """Some of the activations."""

    count: int
    bytes: int

    @classmethod
    def of(cls, sizes: Sequence[int]) -> "Amount":
        """Those with these bytes."""
        return cls(len(sizes), sum(sizes))


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """A plan in figures. Overheads are shares of the step's time."""

    budget_B: int
    policy: str
    rewritten: bool
    unplanned_peak_B: int
    predicted_peak_B: int
    predicted_overhead: float
    recompute_overhead: float
    """The part of it that recomputing takes."""
    pack_overhead: float
    """The part of it that packing takes."""
    swap_overhead: float
    """The part of it that swapping takes: waiting for copies, and what they take from compute."""
    bound: float
    """No schedule of the problem within the budget has less overhead."""
    kept: Amount
    recomputed: Amount
    packed: Amount
    """Bytes before packing."""
    packed_into_B: int
    swapped: Amount
    swapped_B: int
    """The most bytes off the device at once."""
    updates: int
    """Parameters that the optimizer moves."""
    update_parts: int
    """In so many calls of the optimizer; one means that all move at the end."""
    planning_s: float
    note: str


@dataclass(frozen=True)
class TrainingRun(Saved):
    """A run of `lowtide train`."""

    FORMAT = "lowtide-training/2"

    model: str
    batch: tuple[str, ...]
    optimizer: str
    device: str
    torch: str
    lowtide: str
    threads: int
    memory_source: str
    """Who counted the bytes."""
    seed: int
    accumulate: int
    clip_grad_norm: float | None
    memory_limit_B: int | None
    plan: PlanFigures | None
    """None without a budget."""
    startup_s: float
    """Capture, profile and plan."""
    steps: tuple[TrainedStep, ...]
    compared: bool
    difference: str | None
    """Where training first differed from eager training; None where it never did or nothing was compared."""

    @property
    def warm(self) -> tuple[TrainedStep, ...]:
        """The steps whose times count: all but the first, which makes the optimizer's state, where there are others."""
        return self.steps[1:] or self.steps

    @property
    def ratios(self) -> list[float]:
        """Time against the eager step beside it; empty where none ran."""
        return [step.ms / step.eager_ms for step in self.warm if step.eager_ms is not None]

    @property
    def overhead(self) -> float | None:
        """Median of the ratios, minus one; None where nothing was compared."""
        return median(self.ratios) - 1 if self.ratios else None

    @property
    def step_ms(self) -> float:
        """Median time of a step."""
        return median(step.ms for step in self.warm)

    @property
    def eager_ms(self) -> float | None:
        """Median time of an eager step."""
        times = [step.eager_ms for step in self.warm if step.eager_ms is not None]
        return median(times) if times else None

    @property
    def peak_B(self) -> int | None:
        """The highest measured peak."""
        return max((step.peak_B for step in self.steps if step.peak_B is not None), default=None)

    @property
    def eager_peak_B(self) -> int | None:
        """The highest measured peak of eager training."""
        return max((step.eager_peak_B for step in self.steps if step.eager_peak_B is not None), default=None)
