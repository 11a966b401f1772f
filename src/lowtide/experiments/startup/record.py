"""What it takes until a step is planned, and what another shape costs later, beside eager steps."""

from dataclasses import dataclass
from statistics import median

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the start."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Shape:
    """Another shape of the batch, in the steps that were taken with it."""

    batch: str
    first_s: float
    """Its first step: captured, planned, checked, run."""
    later_s: tuple[float, ...]
    measured: bool
    """Was it measured and planned for itself? Else it took over what was at hand."""

    @property
    def cost_s(self) -> float:
        """What its being new has cost."""
        return max(0.0, self.first_s - median(self.later_s))


@dataclass(frozen=True)
class Startup(Saved):
    """Seconds, all of them."""

    FORMAT = "lowtide-startup/3"

    model: str
    batch: tuple[str, ...]
    budget: str
    measure: str
    """When ops were measured: before the first step, or in training."""
    torch: str
    threads: int
    stages: tuple[Stage, ...]
    """Capture and planning; measuring goes on in the steps meanwhile."""
    whole_s: float
    """Until the plan trains, beyond what the steps that were trained meanwhile take in eager."""
    first_loss_s: float
    """From the call of `train_step` to the first loss."""
    meanwhile: int
    """Steps that were trained before the plan was there."""
    eager_s: tuple[float, ...]
    """Steps, the first left out."""
    guards_s: tuple[float, ...]
    """Before each step: are graph and plan still right?"""
    sentinel_s: float
    """One comparison with eager."""
    shapes: tuple[Shape, ...]

    @property
    def eager_step_s(self) -> float:
        """The median."""
        return median(self.eager_s)

    @property
    def shapes_s(self) -> float:
        """What all other shapes together have cost."""
        return sum(shape.cost_s for shape in self.shapes)
