"""What steps take of their process, kind by kind: eager, eager in warm memory, captured, planned."""

from dataclasses import dataclass

from lowtide.records.codec import Saved

EAGER, WARM, CAPTURED = "eager", "eager, warm", "captured"


@dataclass(frozen=True, slots=True)
class KindSettings(Saved):
    """What one process runs."""

    FORMAT = "lowtide-process-kind/1"

    kind: str
    """EAGER, WARM, CAPTURED, the name of a peer, or that of a plan."""
    budget: int | None
    """Of a plan."""
    model: str
    batch_size: int
    image_size: int | None
    seq_len: int | None
    dropout: float | None
    optimizer: str
    lr: float
    seed: int
    policy: str
    time_limit: float | None


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step."""

    ms: float
    faults: int
    """Pages taken from the system while it ran."""
    high_B: int
    """The most memory of the process in it, above what was there before the model was built."""
    peak_B: int | None
    """By the allocator, residents included."""
    loss: float


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of step, in a process of its own."""

    kind: str
    budget_B: int | None
    failure: str | None
    base_B: int
    """Memory of the process before the model: Python, torch, lowtide."""
    resident_B: int
    """Bytes of parameters, buffers, optimizer state and batch."""
    ready_B: int
    """Memory of the process above `base_B` when everything was ready for the first step."""
    arena_B: int | None
    unforeseen: int | None
    """Allocations of the last step that were not at a planned address although they ended in it."""
    steps: tuple[StepFigures, ...]
    """All of them, those to warm up too."""


@dataclass(frozen=True)
class ProcessMemory(Saved):
    """All kinds of one model; step n of each is of the same round."""

    FORMAT = "lowtide-process/1"

    model: str
    batch_size: int
    optimizer: str
    threads: int
    torch: str
    warmup: int
    """Steps at the beginning that do not count."""
    rows: tuple[KindRow, ...]

    def counted(self, row: KindRow) -> tuple[StepFigures, ...]:
        """The steps of `row` that count."""
        return row.steps[self.warmup :]

    def is_equal(self, row: KindRow) -> bool:
        """Are all its losses eager's, to the last bit?"""
        eager = next(other for other in self.rows if other.kind == EAGER)
        return [step.loss for step in row.steps] == [step.loss for step in eager.steps]

    def high(self, row: KindRow) -> int:
        """The most memory that a step of `row` took of the process."""
        return max(step.high_B for step in self.counted(row))
