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
    """Extra time, as a share of the step's as it is."""
    bound: float
    """No schedule inside the budget has less."""
    curve: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds of one stage of finding out."""

    what: str
    seconds: float


MOST_UNITS = 1 << 20
"""No larger batch is looked for: a step that does not grow would fit for ever."""


@dataclass(frozen=True, slots=True)
class Most:
    """The largest batch or length, or the fewest devices; None where there is none."""

    as_it_is: int | None
    planned: int | None


@dataclass(frozen=True)
class Fit(Saved):
    """One step on one device, or on one of several that do the same."""

    FORMAT = "lowtide-fit/4"

    model: str
    parameters: int
    optimizer: str
    batch: tuple[str, ...]
    samples: int
    """In the batch of one device."""
    tokens: int
    """In one sample; 0 where it is not made of tokens."""
    world: int
    """So many devices; 1 is one device alone."""
    parallel: str
    """How the devices share the work: fsdp, hsdp, ddp, tp or fsdp+tp."""
    tensor: int
    """So many devices share each layer, and the batch."""
    sequence: bool
    """Tokens between layers are shared too."""
    compiled: str
    """What torch.compile takes: none, blocks or model."""
    accumulate: int
    """Batches between updates; 0 where gradients go with every step."""
    checkpoint: str
    """What "as it is" lets go and makes again: none, selective or full."""
    device: str
    source: str
    """Where the device's figures come from."""
    memory_B: int
    budget_B: int
    """What the step may take: the device's memory less what its driver takes, or what was asked for."""
    ops: int
    parts: tuple[FitPart, ...]
    peak_B: int
    """Live bytes, the most at any moment."""
    reserved_B: int | None
    """What torch's caching allocator reserves for that, holes included; None where there is none, on a CPU."""
    finds_room: bool
    """That allocator gets by with the budget, unused segments given back where it must."""
    step_ms: float
    curve: tuple[Moment, ...]
    plan: PlannedFit | None
    """None where the step fits and recomputes nothing, and where no plan makes it fit."""
    least_B: int | None
    """Where no plan fits: the least peak that was found."""
    bytes_error: float
    """What was measured differed from `peak_B` on a CPU, from `reserved_B` on a GPU, by so large a share at most."""
    time_error: float
    """The same of times, which are estimates."""
    largest_batch: Most | None
    largest_length: Most | None
    devices_needed: Most | None
    """These three only where they were asked for."""
    seconds: tuple[Stage, ...]
    """Where the time went."""

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
        return 1000 * self.samples / self.tensor / (self.step_ms if self.plan is None else self.plan.step_ms)
