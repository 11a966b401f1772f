"""What a user asks of a training step beside model, optimizer, batch and loss."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lowtide.errors import InputError, shown
from lowtide.planning.policies import policy as find_policy
from lowtide.records.step_plan import EVERYTHING, Allowed
from lowtide.units import parse_bytes

MEASURE = ("training", "before")
COUNTS = ("tensors", "process")


@dataclass(frozen=True, slots=True)
class Options:
    """As in `train_step`, which says what they mean; refused where they make no sense."""

    budget: int | str | None
    policy: str
    clip_grad_norm: float | None
    accumulate: int
    time_limit: float | None
    """Seconds for all plans of a step together, the provisional one included."""
    progress: bool | None
    swap: str
    swap_dir: str | Path | None
    side_effects: str
    sentinel: bool | int
    keep_gradients: bool
    forms: int
    """Of batch and settings, whose graphs and plans are kept."""
    measure: str
    """When: in the first steps of the training, or before."""
    process_group: Any = None
    mesh: Any = None
    bucket_cap_mb: float | None = None
    """Of gradients that are reduced together; None for DDP's own."""
    counts: str = "tensors"
    """What the budget counts: device bytes in tensors, or all that the process takes beyond what it held before."""
    allowed: Allowed = EVERYTHING
    """For benchmarks, which show what each mechanism brings; `train_step` allows everything."""
    addresses: bool = True
    """Planned addresses, where the device has them; off in benchmarks only."""

    @property
    def lines(self) -> list[str]:
        """What must be the same on all ranks."""
        own = ("process_group", "mesh", "progress", "swap_dir")
        return [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.name not in own]

    def __post_init__(self) -> None:
        if self.budget is not None:
            parse_bytes(self.budget, whole=1)
        find_policy(self.policy)
        if self.clip_grad_norm is not None and not self.clip_grad_norm > 0:
            raise InputError(f"clip_grad_norm must be a number above 0, not {shown(self.clip_grad_norm)}")
        if isinstance(self.accumulate, bool) or not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise InputError(f"accumulate must be a whole number of at least 1, not {shown(self.accumulate)}")
        if isinstance(self.forms, bool) or not isinstance(self.forms, int) or self.forms < 1:
            raise InputError(f"forms must be a whole number of at least 1, not {shown(self.forms)}")
        if self.measure not in MEASURE:
            raise InputError(f"measure must be one of {', '.join(MEASURE)}, not {shown(self.measure)}")
        if self.counts not in COUNTS:
            raise InputError(f"counts must be one of {', '.join(COUNTS)}, not {shown(self.counts)}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"time_limit must be a number of seconds above 0, not {shown(self.time_limit)}")
