"""What budgets cost, measured: planned steps beside eager ones and captured ones, in one run."""

from dataclasses import dataclass

from lowtide.experiments.op_times import OpTimes, Rounds
from lowtide.records.codec import Saved


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
class Budgets(Rounds, Saved):
    """All budgets of one model; `eager_ms`, `captured_ms` and every row's `ms` are of the same rounds."""

    FORMAT = "lowtide-budgets/2"

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
