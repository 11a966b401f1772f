"""What a captured step costs beside eager training, measured in one run."""

from dataclasses import dataclass
from statistics import median

from lowtide.records.codec import Saved


@dataclass(frozen=True)
class Comparison(Saved):
    """Steps of both kinds, alternating, in order; times in milliseconds, peaks with the residents included."""

    FORMAT = "lowtide-comparison/1"

    model: str
    batch: tuple[str, ...]
    optimizer: str
    torch: str
    threads: int
    memory_source: str
    warmup: int
    eager_ms: tuple[float, ...]
    captured_ms: tuple[float, ...]
    eager_peak_B: int
    captured_peak_B: int
    op_sum_ms: float
    """Sum of the per-op times of a profile made in the same session."""
    op_peak_B: int
    """Highest point of that profile's timeline."""
    plain_ms: float
    """Time of a plain run of the graph between the profile's runs."""

    @property
    def ratios(self) -> list[float]:
        """Captured over eager, of neighbouring steps."""
        return [ours / theirs for ours, theirs in zip(self.captured_ms, self.eager_ms, strict=True)]

    @property
    def overhead(self) -> float:
        """Median of the ratios, minus one."""
        return median(self.ratios) - 1
