"""What every experiment trains."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with its sizes, its optimizer, and how long plans for it may take."""

    model: str
    batch_size: int
    image_size: int | None
    seq_len: int | None
    dropout: float | None
    optimizer: str
    lr: float
    seed: int
    time_limit: float | None
    """Seconds; None for what `train_step` takes by itself."""
