"""torch.compile with torch's `activation_memory_budget` and with lowtide's budget: bytes, time, results."""

from dataclasses import dataclass

from lowtide.experiments.workload import Workload
from lowtide.records.codec import Saved

EAGER = "eager"


@dataclass(frozen=True, slots=True)
class KindSettings(Workload, Saved):
    """What one process runs."""

    FORMAT = "lowtide-compiled-kind/1"

    kind: str
    share: float | None
    """torch's `activation_memory_budget`, where torch decides."""
    budget: int | None
    """Bytes, where lowtide does; neither is given for eager steps."""
    executor: str


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step."""

    ms: float
    peak_B: int
    """By the allocator, residents included."""
    loss: float


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of step, in a process of its own."""

    kind: str
    share: float | None
    budget_B: int | None
    failure: str | None
    steps: tuple[StepFigures, ...]
    """All of them, those to warm up too."""
    off: float | None
    """The gradients of the first batch from the first parameters, computed after all steps: how far all
    of them together are from those of torch.compile without a budget, against their norm. 0.0 is equal bit for bit."""


@dataclass(frozen=True)
class Compared(Saved):
    """All kinds of one model; step n of each is of the same round."""

    FORMAT = "lowtide-compiled/1"

    model: str
    batch_size: int
    dropout: float | None
    """None: the model's own."""
    optimizer: str
    executor: str
    threads: int
    torch: str
    warmup: int
    """Steps at the beginning that do not count."""
    resident_B: int
    """Bytes of all tensors between two steps."""
    rows: tuple[KindRow, ...]
    """Eager steps, torch's budgets from the largest on, lowtide's."""

    def counted(self, row: KindRow) -> tuple[StepFigures, ...]:
        """The steps of `row` that count."""
        return row.steps[self.warmup :]

    def peak(self, row: KindRow) -> int:
        """The most bytes of a step."""
        return max(step.peak_B for step in self.counted(row))

    def losses_equal(self, row: KindRow) -> bool:
        """Are all its losses those of torch.compile without a budget?"""
        return [step.loss for step in row.steps] == [step.loss for step in self.unplanned.steps]

    def against_unplanned(self, row: KindRow) -> list[float]:
        """Of each round the time of `row` against that of torch.compile without a budget, less one."""
        pairs = zip(self.counted(row), self.counted(self.unplanned), strict=True)
        return [mine.ms / other.ms - 1 for mine, other in pairs]

    @property
    def unplanned(self) -> KindRow:
        """torch.compile without a budget."""
        return next(row for row in self.rows if row.share is not None)

    def answers(self) -> list[tuple[KindRow, KindRow, list[float]]]:
        """Each of torch's with the least generous of lowtide's that was given as many bytes as torch took, where there
        is one, and of each round lowtide's time against torch's, less one."""
        ours = sorted(
            (row for row in self.rows if row.budget_B is not None and row.failure is None),
            key=lambda row: row.budget_B or 0,
        )
        found = []
        for theirs in (row for row in self.rows if row.share is not None):
            fitting = [row for row in ours if (row.budget_B or 0) <= self.peak(theirs)]
            if fitting:
                pairs = zip(self.counted(fitting[-1]), self.counted(theirs), strict=True)
                found.append((theirs, fitting[-1], [mine.ms / other.ms - 1 for mine, other in pairs]))
        return found
