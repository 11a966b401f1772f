"""What steps take of their process, kind by kind: eager, eager in warm memory, captured, planned, and what peers do."""

from dataclasses import dataclass

from lowtide.errors import InputError, shown
from lowtide.experiments.workload import Workload
from lowtide.records.codec import Saved
from lowtide.records.step_plan import EVERYTHING, Allowed

EAGER, WARM, CAPTURED = "eager", "eager, warm", "captured"


@dataclass(frozen=True, slots=True)
class Variant:
    """How a plan is made."""

    policy: str = "optimal"
    allowed: Allowed = EVERYTHING
    addresses: bool = True
    swap: str = "off"
    counts: str = "tensors"


PLAIN = "optimal"
VARIANTS = {
    PLAIN: Variant(),
    "mutwo": Variant(policy="mutwo"),
    "chen": Variant(policy="chen"),
    "no packing": Variant(allowed=Allowed(pack=False)),
    "late updates": Variant(allowed=Allowed(early_updates=False)),
    "no addresses": Variant(addresses=False),
    "swap": Variant(swap="disk"),
    "process": Variant(counts="process"),
}
"""lowtide as it is, with another policy, without one of its mechanisms, with swapping beside them, and with the budget
as that of the process."""


def find_variant(name: str) -> Variant:
    """Of VARIANTS."""
    if name not in VARIANTS:
        raise InputError(f"unknown variant {shown(name)}: write one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


@dataclass(frozen=True, slots=True)
class KindSettings(Workload, Saved):
    """What one process runs."""

    FORMAT = "lowtide-process-kind/2"

    kind: str
    """EAGER, WARM, CAPTURED, the name of a peer, or that of a plan."""
    budget: int | None
    """Of a plan."""
    variant: str
    """How a plan is made: PLAIN or another of VARIANTS."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a plan says of itself."""

    peak_B: int
    overhead: float
    """Against the captured step."""
    bound: float
    """No plan under the budget adds less, by these times."""


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
    startup_s: float
    """Until everything was ready for it, the model itself aside."""
    promise: Promise | None
    arena_B: int | None
    unforeseen: int | None
    """Allocations of the last step that were not at a planned address although they ended in it."""
    steps: tuple[StepFigures, ...]
    """All of them, those to warm up too."""
    group: int = 0
    """Rows of one group took turns; each group has its own warm eager steps."""


@dataclass(frozen=True)
class ProcessMemory(Saved):
    """All kinds of one model; step n of each is of the same round."""

    FORMAT = "lowtide-process/2"

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
        warm = self.control(row)
        return [step.loss for step in row.steps] == [step.loss for step in warm.steps]

    def control(self, row: KindRow) -> KindRow:
        """The warm eager steps that took turns with those of `row`."""
        return next(other for other in self.rows if other.kind == WARM and other.group == row.group)

    def against_warm(self, row: KindRow) -> list[float]:
        """Of each round the time against warm eager's, less one."""
        pairs = zip(self.counted(row), self.counted(self.control(row)), strict=True)
        return [mine.ms / other.ms - 1 for mine, other in pairs]

    def peak(self, row: KindRow) -> int | None:
        """The most bytes of a step by the allocator."""
        return max((step.peak_B for step in self.counted(row) if step.peak_B is not None), default=None)

    def high(self, row: KindRow) -> int:
        """The most memory that a step of `row` took of the process."""
        return max(step.high_B for step in self.counted(row))
