"""What `lowtide fit` found: bytes, which are exact but for workspaces, and times, which are estimates."""

from dataclasses import dataclass

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class FitPart:
    """Bytes of one kind at the peak of the step as it is."""

    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A point of the memory curve."""

    ms: float
    bytes: int


@dataclass(frozen=True, slots=True)
class PlannedFit:
    """The step with a plan."""

    peak_B: int
    step_ms: float
    overhead: float
    """Extra time, as a share of the step's."""
    bound: float
    """No schedule inside the budget has less."""
    curve: tuple[Moment, ...]


@dataclass(frozen=True)
class Fit(Saved):
    """One step on one device."""

    FORMAT = "lowtide-fit/1"

    model: str
    parameters: int
    optimizer: str
    batch: tuple[str, ...]
    samples: int
    """In the batch."""
    world: int
    """So many devices, the parameters sharded over them (FSDP2); 1 is one device alone."""
    device: str
    source: str
    """Where the device's figures come from."""
    memory_B: int
    budget_B: int
    """What the step may take: the device's memory less what its driver takes, or what was asked for."""
    ops: int
    parts: tuple[FitPart, ...]
    peak_B: int
    step_ms: float
    curve: tuple[Moment, ...]
    plan: PlannedFit | None
    """None where the step fits as it is, and where no plan makes it fit."""
    least_B: int | None
    """Where no plan fits: the least peak that was found."""
    seconds: tuple[float, float]
    """Of capturing and of planning."""

    @property
    def fits(self) -> bool:
        """As it is."""
        return self.peak_B <= self.budget_B

    @property
    def trains(self) -> bool:
        """As it is or with a plan."""
        return self.fits or self.plan is not None

    @property
    def samples_per_second(self) -> float | None:
        """Of each device, with the plan where one is needed; None where nothing fits."""
        if not self.trains:
            return None
        return 1000 * self.samples / (self.step_ms if self.plan is None else self.plan.step_ms)
