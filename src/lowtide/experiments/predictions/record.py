"""A figure that was predicted and then measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """One planned case of any experiment."""

    file: str
    """The raw file, below the folder that was read."""
    experiment: str
    model: str
    case: str
    predicted_peak_B: int
    measured_peak_B: int
    predicted_ms: float | None
    """The measured time of the step without a plan, more by the predicted overhead; None where no such step ran."""
    measured_ms: float | None
    """Median of the rounds."""
    low_ms: float | None
    """The fastest round."""
    high_ms: float | None
    """The slowest round."""

    @property
    def peak_error(self) -> float:
        """How much more was measured, as a share of the prediction."""
        return self.measured_peak_B / self.predicted_peak_B - 1

    @property
    def time_error(self) -> float | None:
        """How much longer it took, as a share of the prediction; None where time was not compared."""
        if self.predicted_ms is None or self.measured_ms is None:
            return None
        return self.measured_ms / self.predicted_ms - 1
