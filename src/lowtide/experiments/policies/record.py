"""Policies beside each other: the same step planned by each of them, from slack to the floor, and measured."""

from dataclasses import dataclass

from lowtide.experiments.case import Activations
from lowtide.experiments.op_times import OpTimes, Rounds
from lowtide.records.codec import Saved


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
class Policies(Rounds, Saved):
    """All policies of one model; `eager_ms`, `captured_ms` and every row's `ms` are of the same rounds."""

    FORMAT = "lowtide-policies/1"

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

    def of(self, policy: str) -> list[PolicyRow]:
        """The rows of one policy, from slack down."""
        return [row for row in self.rows if row.policy == policy]
