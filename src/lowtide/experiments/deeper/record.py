"""What the start of a training takes, by the number of layers."""

from dataclasses import dataclass

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class Depth:
    """One model; seconds."""

    layers: int
    ops: int
    capture_s: float
    provisional_s: float
    """The plan by an estimate, which has a limit of its own."""
    measure_s: float
    plan_s: float
    """Rewriting included."""
    eager_s: float
    """A step."""


@dataclass(frozen=True)
class Deeper(Saved):
    """The same model with more and more layers."""

    FORMAT = "lowtide-deeper/1"

    budget: str
    time_limit: float | None
    torch: str
    threads: int
    depths: tuple[Depth, ...]
