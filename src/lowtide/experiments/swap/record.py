"""What budgets cost when values are made again, sent away, or both: measured side by side, in one run."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median

from lowtide.experiments.op_times import Accounting, OpTimes
from lowtide.records.codec import load_record, save_record
from lowtide.records.training_run import PlanFigures
from lowtide.records.transfer import TransferSample

FORMAT = "lowtide-ways/1"


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
class SwapComparison:
    """All budgets and methods of one model; all times are of the same rounds."""

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

    def against_eager(self, row: SwapRow) -> list[float]:
        """Extra time of each round, as a share of its eager step."""
        return [mine / other - 1 for mine, other in zip(row.ms, self.eager_ms, strict=True)]

    def against_captured(self, row: SwapRow) -> list[float]:
        """Extra time of each round, as a share of its captured step."""
        return [mine / other - 1 for mine, other in zip(row.ms, self.captured_ms, strict=True)]

    def accounting(self, row: SwapRow) -> Accounting:
        """Where the extra time against the captured step goes; only of a row with a plan."""
        if row.ops is None:
            raise ValueError(f"there is no plan for {row.left:.0%}, {row.way}")
        difference = median(mine - other for mine, other in zip(row.ms, self.captured_ms, strict=True))
        return Accounting.of(difference, row.ops, self.captured_ops, row.wait_ms)

    def removed(self, left: float) -> float | None:
        """The share of the measured overhead of recomputing alone that swapping removes; None where there is none."""
        found = {row.way: row for row in self.rows if row.left == left and row.plan is not None}
        if Method.RECOMPUTE not in found or Method.BOTH not in found:
            return None
        alone, both = (median(self.against_captured(found[way])) for way in (Method.RECOMPUTE, Method.BOTH))
        return 1 - both / alone if alone > 0 else None

    def save(self, path: Path) -> None:
        """Write it as versioned JSON."""
        save_record(self, path, version=FORMAT)

    @classmethod
    def load(cls, path: Path) -> "SwapComparison":
        """Read back an equal record."""
        return load_record(cls, path, version=FORMAT)
