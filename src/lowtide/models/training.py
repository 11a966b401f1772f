"""What a model is built from and what comes out."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from lowtide.errors import InputError


@dataclass(frozen=True)
class Training:
    """A model and one batch for it."""

    name: str
    model: nn.Module
    batch: Any
    loss: Callable[[nn.Module, Any], Any] | None = None
    """None where the model computes its own loss."""


@dataclass(frozen=True)
class ModelOptions:
    """Sizes that a user may choose; None leaves the model's own. A model refuses those that it does not have."""

    image_size: int | None = None
    seq_len: int | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        for name, size in (("image size", self.image_size), ("sequence length", self.seq_len)):
            if size is not None and size < 1:
                raise InputError(f"the {name} must be at least 1, not {size}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise InputError(f"dropout is a share from 0 up to but not 1, not {self.dropout}")

    def refuse_all_but(self, known: tuple[str, ...], model: str) -> None:
        """An option that the model does not have is an error, not ignored."""
        for option in fields(self):
            if getattr(self, option.name) is not None and option.name not in known:
                raise InputError(f"--{option.name.replace('_', '-')} does not apply to {model}: leave it out")
