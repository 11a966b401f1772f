"""Steps on several ranks, kind by kind: eager DDP and FSDP2 with their own switches, and plans at the same peaks."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to train."""

    way: str
    """ddp or fsdp."""
    reshard: bool
    """Does FSDP2 drop after forward what it has gathered?"""
    checkpoint: bool
    """Are the blocks computed again in backward by torch.utils.checkpoint?"""
    budget_B: int | None = None
    """Of a plan; a plan decides the two others itself. None for eager."""
    of: str = ""
    """Whose peak the budget of a plan is."""

    @property
    def name(self) -> str:
        """For tables."""
        if self.budget_B is not None:
            return f"lowtide at {self.of.removeprefix('eager ')}"
        switches = [] if self.way == "ddp" else ["reshard" if self.reshard else "no reshard"]
        return ", ".join([f"eager {self.way}", *switches, *["checkpoint"] * self.checkpoint])


def switches(way: str) -> list[Kind]:
    """All that DDP or FSDP2 can be told by their own switches, and `torch.utils.checkpoint`."""
    return [
        Kind(way, reshard, again)
        for reshard in ((True, False) if way == "fsdp" else (True,))
        for again in (False, True)
    ]


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step on one rank."""

    ms: float
    peak_B: int
    """By the allocator: all that the process held of tensors at the peak of the step, whoever held it."""
    planned_peak_B: int | None
    """Of a plan: what counts against its budget."""
    loss: float


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind; its processes lived at the same time as those of its group, and took turns with them."""

    kind: Kind
    group: int
    failure: str | None
    startup_s: float
    predicted: float | None
    """Of a plan: extra time against the captured step."""
    bound: float | None
    """No plan under the budget adds less, by the times it was made from."""
    gathered_again: int | None
    """Of a plan: gathers that run a second time."""
    steps: tuple[tuple[RankStep, ...], ...]
    """Of every round, those to warm up too, the step of each rank."""


@dataclass(frozen=True)
class Parallel(Saved):
    """All kinds of one model; step n of each row of a group is of the same round."""

    FORMAT = "lowtide-parallel/1"

    model: str
    parameters: int
    batch_size: int
    """Of each rank."""
    optimizer: str
    world: int
    threads: int
    """Of each rank."""
    torch: str
    warmup: int
    """Rounds at the beginning that do not count."""
    rows: tuple[KindRow, ...]

    def counted(self, row: KindRow) -> tuple[tuple[RankStep, ...], ...]:
        """The rounds of `row` that count."""
        return row.steps[self.warmup :]

    def ms(self, row: KindRow) -> list[float]:
        """Of every round that counts, the time of the slowest rank."""
        return [max(step.ms for step in ranks) for ranks in self.counted(row)]

    def peaks(self, row: KindRow) -> list[int]:
        """Per rank the most bytes of a step that counts."""
        return [max(ranks[rank].peak_B for ranks in self.counted(row)) for rank in range(self.world)]

    def peak(self, row: KindRow) -> int:
        """Of the rank with the most."""
        return max(self.peaks(row))

    def control(self, row: KindRow) -> KindRow:
        """The first of its group, with which it took turns."""
        return next(other for other in self.rows if other.group == row.group)

    def against_control(self, row: KindRow) -> list[float]:
        """Of every round the time against that of the control, less one."""
        return [a / b - 1 for a, b in zip(self.ms(row), self.ms(self.control(row)), strict=True)]

    def rival(self, row: KindRow) -> KindRow | None:
        """Of a plan the eager kind of its group whose peak is its budget."""
        others = (other for other in self.rows if other.group == row.group and other.kind.budget_B is None)
        return next((other for other in others if other.kind.name == row.kind.of), None)

    def against_rival(self, row: KindRow) -> list[float]:
        """Of every round the time against that of the rival, less one; nothing where there is none."""
        rival = self.rival(row)
        if rival is None or row.failure is not None:
            return []
        return [a / b - 1 for a, b in zip(self.ms(row), self.ms(rival), strict=True)]

    def is_equal(self, row: KindRow) -> bool:
        """Are all losses of all ranks those of eager's of the same way, to the last bit?"""
        others = (r for r in self.rows if r.kind.way == row.kind.way and r.kind.budget_B is None and r.steps)
        eager = next(others, None)
        return eager is not None and _losses(row.steps) == _losses(eager.steps)


def _losses(rounds: Sequence[Sequence[RankStep]]) -> list[list[float]]:
    return [[step.loss for step in ranks] for ranks in rounds]


def median_ms(found: Parallel, row: KindRow) -> float:
    """Of the rounds that count."""
    return median(found.ms(row))
