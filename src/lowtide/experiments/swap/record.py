"""What budgets cost when values are made again, sent away, or both: measured side by side, in one run."""

from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from lowtide.experiments.op_times import OpTimes, Rounds
from lowtide.records.codec import Saved
from lowtide.records.training_run import PlanFigures
from lowtide.records.transfer import TransferSample


class Method(StrEnum):
    """What a plan may do beside keeping."""

    RECOMPUTE = "recompute only"
    """And pack."""
    SWAP = "swap only"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class SwapRow:
    """One budget by one method; `plan` is None where no plan was found."""

    left: float
    """Share of the bytes above the residents that is left."""
    budget_B: int
    way: Method
    """The name that it has in the files."""
    failure: str | None
    """Why there is no plan."""
    plan: PlanFigures | None
    measured_peak_B: int | None
    ms: tuple[float, ...]
    """Per round."""
    wait_ms: tuple[float, ...]
    """Per round: how long the step stood still for copies."""
    ops: OpTimes | None


@dataclass(frozen=True)
class SwapComparison(Rounds, Saved):
    """All budgets and methods of one model; all times are of the same rounds."""

    FORMAT = "lowtide-ways/1"

    model: str
    batch: tuple[str, ...]
    optimizer: str
    device: str
    torch: str
    threads: int
    memory_source: str
    transfer: tuple[TransferSample, ...]
    """Copies off the device and back, one at a time, measured at the start."""
    transfer_tier: str
    transfer_drag: float
    """Milliseconds that compute loses for every MiB that goes out and comes back."""
    warmup: int
    resident_B: int
    unplanned_peak_B: int
    eager_ms: tuple[float, ...]
    captured_ms: tuple[float, ...]
    captured_ops: OpTimes
    rows: tuple[SwapRow, ...]

    def removed(self, left: float) -> float | None:
        """The share of the measured overhead of recomputing alone that swapping removes; None where there is none."""
        found = {row.way: row for row in self.rows if row.left == left and row.plan is not None}
        if Method.RECOMPUTE not in found or Method.BOTH not in found:
            return None
        alone, both = (median(self.against_captured(found[way])) for way in (Method.RECOMPUTE, Method.BOTH))
        return 1 - both / alone if alone > 0 else None
