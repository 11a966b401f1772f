"""One process, nothing to share: what the ways to spread a model have in common."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

FOREIGN = (
    "is a DTensor that fully_shard alone did not make (tensor or pipeline parallel): lowtide supports DDP, and "
    "fully_shard over a mesh (shard) or (replicate, shard)"
)
"""Of parameters that are spread in another way."""


class Alone:
    """A model that is not spread."""

    group: Any = None
    """The process group; None where there is no other rank."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        """What is traced, and what the loss function gets: of DDP the module inside, which is all that it wraps."""

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While a step is traced: what torch's own wrapper does around a forward does not happen."""
        yield

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Around a forward of the user's that no backward follows."""
        yield

    def digests(self) -> list[str]:
        """Of the parameters that must be the same on all ranks, where nobody has seen to it."""
        return []

    def refuse_calls(self, calls: int, written: Sequence[str], where: str) -> None:
        """Of a loss that calls the model so often, where the forward writes into these buffers."""

    def start(self, *, synced: bool) -> None:
        """Before a step; `synced` says whether the one before moved the parameters."""

    def gathered(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of the tensors that this rank holds, those that forward works on."""
        return dict(parameters)

    def flush(self, parameters: Sequence[Tensor]) -> None:
        """Gradients in `.grad` that wait to be reduced are reduced."""
