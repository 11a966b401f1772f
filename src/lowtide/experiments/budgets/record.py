"""What budgets cost, measured: planned steps beside eager ones and captured ones, in one run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lowtide.records.codec import load_record, save_record

FORMAT = "lowtide-budgets/2"


@dataclass(frozen=True, slots=True)
class OpTimes:
    """Milliseconds of the ops of one step, run op by op, by what they are there for."""

    program: float
    """Forward and backward."""
    update: float
    """The optimizer."""
    recompute: float
    pack: float
    unpack: float
    state: float
    """Noting the random generator's state."""
    swap: float
    """Starting copies off the device and back; not the waiting for them."""


@dataclass(frozen=True, slots=True)
class Accounting:
    """Where the extra time goes, in milliseconds; the parts add up to `difference`."""

    difference: float
    """Median over the rounds of the planned step minus the other: the captured one, or in sweeps the eager one."""
    recompute: float
    pack: float
    unpack: float
    state: float
    swap: float
    """Starting copies."""
    swap_wait: float
    """Standing still for copies: median over the rounds."""
    program: float
    """Forward and backward in another order, warmer or colder caches."""
    update: float
    """The optimizer, one parameter at a time in both."""
    other: float
    """Anything else, noise included; also what `optimizer.step()` in parts costs more than one for all, and against
    eager steps what capturing changes."""

    @classmethod
    def of(cls, difference: float, ops: OpTimes, base: OpTimes, waits: Sequence[float] = ()) -> "Accounting":
        """`difference` divided up: `ops` are of the planned step, `base` of the captured one, `waits` of the rounds."""
        program, update = ops.program - base.program, ops.update - base.update
        waited = median(waits) if waits else 0.0
        known = ops.recompute + ops.pack + ops.unpack + ops.state + ops.swap + waited + program + update
        return cls(
            difference=difference,
            recompute=ops.recompute,
            pack=ops.pack,
            unpack=ops.unpack,
            state=ops.state,
            swap=ops.swap,
            swap_wait=waited,
            program=program,
            update=update,
            other=difference - known,
        )


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
