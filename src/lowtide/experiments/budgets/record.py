"""What budgets cost, measured: planned steps beside eager ones and captured ones, in one run."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lowtide.experiments.op_times import Accounting, OpTimes
from lowtide.records.codec import load_record, save_record

FORMAT = "lowtide-budgets/2"


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One budget; figures are None where no plan was found."""

    left: float
    """Share of the bytes above the residents that is left."""
    budget_B: int
    failure: str | None
    """Why there is no plan."""
    predicted_peak_B: int | None
    measured_peak_B: int | None
    predicted_overhead: float | None
    bound: float | None
    """No schedule of the problem within the budget has less overhead."""
    planning_s: float | None
    ms: tuple[float, ...]
    """Per round."""
    ops: OpTimes | None


@dataclass(frozen=True)
class Budgets:
    """All budgets of one model; `eager_ms`, `captured_ms` and every row's `ms` are of the same rounds."""

    model: str
    batch: tuple[str, ...]
    optimizer: str
    device: str
    torch: str
    threads: int
    memory_source: str
    policy: str
    warmup: int
    resident_B: int
    unplanned_peak_B: int
    eager_ms: tuple[float, ...]
    eager_peak_B: int
    captured_ms: tuple[float, ...]
    captured_peak_B: int
    captured_ops: OpTimes
    rows: tuple[BudgetRow, ...]

    def against_eager(self, row: BudgetRow) -> list[float]:
        """Extra time of each round, as a share of its eager step."""
        return [mine / other - 1 for mine, other in zip(row.ms, self.eager_ms, strict=True)]

    def against_captured(self, row: BudgetRow) -> list[float]:
        """Extra time of each round, as a share of its captured step."""
        return [mine / other - 1 for mine, other in zip(row.ms, self.captured_ms, strict=True)]

    def accounting(self, row: BudgetRow) -> Accounting:
        """Where the extra time goes; only of a row with a plan."""
        if row.ops is None:
            raise ValueError(f"there is no plan for {row.left:.0%}")
        difference = median(mine - other for mine, other in zip(row.ms, self.captured_ms, strict=True))
        return Accounting.of(difference, row.ops, self.captured_ops)

    def save(self, path: Path) -> None:
        """Write it as versioned JSON."""
        save_record(self, path, version=FORMAT)

    @classmethod
    def load(cls, path: Path) -> "Budgets":
        """Read back an equal record."""
        return load_record(cls, path, version=FORMAT)
