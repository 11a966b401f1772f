"""Runs that others have published, and what `lowtide fit` says of them."""

from dataclasses import dataclass

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class Run:
    """One published run: how it was set, and what was measured."""

    name: str
    model: str
    device: str
    batch: int
    length: int
    source: str
    world: int = 1
    parallel: str = "fsdp"
    tensor: int = 1
    sequence: bool = False
    checkpoint: str = "none"
    compiled: str = "none"
    accumulate: int = 0
    dtype: str = "bf16"
    GiB: float | None = None
    """Memory of a device."""
    context_MiB: int = 0
    """Of it, what the source counts as the driver's."""
    per_second: float | None = None
    """Of each device."""
    unit: str = "tokens"
    held_back: bool = True
    """Not looked at when the model of bytes and times was made."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What is predicted of a run."""

    run: Run
    live_B: int
    reserved_B: int
    per_second: float

    @property
    def bytes_error(self) -> float | None:
        """Share by which the prediction is above what was published."""
        if self.run.GiB is None:
            return None
        return (self.reserved_B + (self.run.context_MiB << 20)) / (self.run.GiB * 2**30) - 1

    @property
    def time_error(self) -> float | None:
        """The same of the rate."""
        return None if self.run.per_second is None else self.per_second / self.run.per_second - 1


@dataclass(frozen=True)
class PublicRuns(Saved):
    """All of them."""

    FORMAT = "lowtide-public-runs/1"

    said: tuple[Said, ...]
