"""What estimates were off by on this machine, by kind of op and for whole steps: the error bars, and a better clock."""

from dataclasses import dataclass

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class KindError:
    """All ops of one kind, of all models."""

    kind: str
    ops: int
    measured_ms: float
    estimated_ms: float
    """By the rates alone."""
    off: float
    """Median over the ops of how far an estimate that was corrected by the other models is from the measured time, as
    a share of it."""

    def times(self, start_ms: float) -> float:
        """How much longer it takes than the rates say, beyond what starting an op takes."""
        measured, estimated = (ms - self.ops * start_ms for ms in (self.measured_ms, self.estimated_ms))
        return measured / estimated if measured > 0 and estimated > 0 else 1.0


@dataclass(frozen=True, slots=True)
class StepError:
    """One model's step."""

    model: str
    batch: str
    measured_ms: float
    estimated_ms: float
    """By the rates alone."""
    corrected_ms: float
    """Each kind of op corrected by the other models; by itself where it is the only one."""
    measured_B: int
    said_B: int
    """Peak of the step as it is."""


@dataclass(frozen=True)
class Calibration(Saved):
    """Of one machine."""

    FORMAT = "lowtide-calibration/1"

    machine: str
    memory_B: int
    bytes_per_ms: float
    flops_per_ms: float
    start_ms: float
    kinds: tuple[KindError, ...]
    steps: tuple[StepError, ...]

    @property
    def time_error(self) -> float:
        """The largest of the steps, corrected."""
        return max(abs(step.corrected_ms / step.measured_ms - 1) for step in self.steps)

    @property
    def bytes_error(self) -> float:
        """The largest of the steps."""
        return max(abs(step.said_B / step.measured_B - 1) for step in self.steps)
