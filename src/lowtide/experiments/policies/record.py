"""Policies beside each other: the same step planned by each of them, from slack to the floor, and measured."""

from dataclasses import dataclass
from pathlib import Path

from lowtide.experiments.case import Activations
from lowtide.experiments.op_times import OpTimes
from lowtide.records.codec import load_record, save_record

FORMAT = "lowtide-policies/1"


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy at one budget; figures are None where it found no plan, measured ones also where it was too slow to
    run."""

    policy: str
    budget_B: int
    failure: str | None
    step: str
    """Rows of the same step were measured once; `captured` where everything fits as it is."""
    predicted_peak_B: int | None
    measured_peak_B: int | None
    predicted_overhead: float | None
    """As a share of the captured step."""
    bound: float | None
    """No schedule within the budget has less overhead; 0 where the policy certifies nothing."""
    planning_s: float | None
    activations: Activations | None
    ms: tuple[float, ...]
    """Per round."""
    ops: OpTimes | None


@dataclass(frozen=True)
class Policies:
    """All policies of one model; `eager_ms`, `captured_ms` and every row's `ms` are of the same rounds."""

    model: str
    batch: tuple[str, ...]
    optimizer: str
    device: str
    torch: str
    threads: int
    memory_source: str
    warmup: int
    resident_B: int
    unplanned_peak_B: int
    floor_B: int
    """The least peak that was found."""
    eager_ms: tuple[float, ...]
    eager_peak_B: int
    captured_ms: tuple[float, ...]
    captured_peak_B: int
    captured_ops: OpTimes
    rows: tuple[PolicyRow, ...]

    def against_captured(self, row: PolicyRow) -> list[float]:
        """Extra time of each round, as a share of its captured step; nothing where the plan was not run."""
        return _extra(row.ms, self.captured_ms)

    def against_eager(self, row: PolicyRow) -> list[float]:
        """Extra time of each round, as a share of its eager step; nothing where the plan was not run."""
        return _extra(row.ms, self.eager_ms)

    def of(self, policy: str) -> list[PolicyRow]:
        """The rows of one policy, from slack down."""
        return [row for row in self.rows if row.policy == policy]

    def save(self, path: Path) -> None:
        """Write it as versioned JSON."""
        save_record(self, path, version=FORMAT)

    @classmethod
    def load(cls, path: Path) -> "Policies":
        """Read back an equal record."""
        return load_record(cls, path, version=FORMAT)


def _extra(mine: tuple[float, ...], other: tuple[float, ...]) -> list[float]:
    return [a / b - 1 for a, b in zip(mine, other, strict=True)] if mine else []
