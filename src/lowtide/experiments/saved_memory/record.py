"""MemorySamples: device bytes sampled while one step ran, without and with a plan."""

from dataclasses import dataclass

from lowtide.records.codec import Saved


@dataclass(frozen=True, slots=True)
class SampledStep:
    """One step, looked at again and again while it ran."""

    ms: tuple[float, ...]
    """Since the step began; only samples that differ from the one before, and the last."""
    bytes: tuple[int, ...]
    """Device bytes at that moment, parameters, state and batch included."""
    peak_B: int
    """By the allocator, which misses nothing between two samples."""
    step_ms: float


@dataclass(frozen=True)
class MemorySamples(Saved):
    """The same step, trained eagerly and as planned."""

    FORMAT = "lowtide-samples/1"

    model: str
    batch: tuple[str, ...]
    optimizer: str
    device: str
    torch: str
    memory_source: str
    every_ms: float
    """Wanted between two samples."""
    budget_B: int
    before: SampledStep
    after: SampledStep
