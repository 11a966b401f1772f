"""A sweep: one model at several batch sizes, with and without a plan."""

from dataclasses import dataclass
from statistics import median

from lowtide.experiments.case import Case
from lowtide.experiments.machine import Machine
from lowtide.experiments.op_times import Accounting
from lowtide.records.codec import Saved


@dataclass(frozen=True)
class Pair:
    """One batch size."""

    batch_size: int
    planned: Case
    plain: Case

    @property
    def equal(self) -> bool | None:
        """Are all losses the same, bit for bit? None where one of the two has none."""
        if not self.planned.losses or not self.plain.losses:
            return None
        return self.planned.losses == self.plain.losses

    @property
    def reduction(self) -> float | None:
        """By how much the plan lowers the measured peak, as a share of it; None where one was not measured."""
        if self.planned.peak_B is None or self.plain.peak_B is None:
            return None
        return 1 - self.planned.peak_B / self.plain.peak_B

    @property
    def ratios(self) -> list[float]:
        """Extra time of each round, as a share of the step without a plan; empty where one did not train."""
        if len(self.planned.ms) != len(self.plain.ms):
            return []
        return [mine / other - 1 for mine, other in zip(self.planned.ms, self.plain.ms, strict=True)]

    @property
    def overhead(self) -> float | None:
        """Median of the rounds."""
        return median(self.ratios) if self.ratios else None

    @property
    def accounting(self) -> Accounting | None:
        """Where the extra time against eager goes; None where not both were measured to the end."""
        if not self.ratios or self.planned.ops is None or self.plain.ops is None:
            return None
        difference = median(mine - other for mine, other in zip(self.planned.ms, self.plain.ms, strict=True))
        return Accounting.of(difference, self.planned.ops, self.plain.ops)


@dataclass(frozen=True)
class Sweep(Saved):
    """All batch sizes of one model."""

    FORMAT = "lowtide-sweep/1"

    model: str
    budget: str
    machine: Machine
    pairs: tuple[Pair, ...]
