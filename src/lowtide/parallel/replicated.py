"""A model of which every rank has a copy: gradients are averaged, in DDP's buckets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import _broadcast_coalesced, _compute_bucket_assignment_by_size
from torch.nn.parallel import DistributedDataParallel

from lowtide.errors import CaptureError
from lowtide.kernels.collectives import all_reduce, with_all
from lowtide.parallel.alone import Alone

BUCKET_MB = 25
"""Of gradients that are reduced together, by default, as in DDP."""
FIRST_BUCKET_BYTES = 2**20
"""Of the first of them, as in DDP: it is ready first, and is not to wait."""


@dataclass(frozen=True)
class Replicated(Alone):
    """Copies of `model`, which was given plain or under DDP."""

    group: Any = field()  # not the default of one process
    model: nn.Module
    limits: tuple[int, ...]
    """Bytes of the first bucket, and of those after it."""
    broadcasts: bool
    """Do the buffers follow those of the first rank?"""
    under_ddp: bool = False
    left_out: frozenset[str] = frozenset()
    """Names of parameters whose gradients stay each rank's own."""

    @classmethod
    def of(cls, model: nn.Module, group: Any, bucket_mb: float | None) -> "Replicated":
        """By DDP's own settings where it is there; a first bucket of 1 MiB where no size was asked for, as DDP does."""
        if isinstance(model, DistributedDataParallel):
            config = model._bucket_config
            sizes = tuple(config.per_bucket_bytes_caps) or (config.first_bucket_bytes_cap, config.bucket_bytes_cap)
            ignored = frozenset(model.parameters_to_ignore)
            return cls(model.process_group, model.module, sizes, bool(model.broadcast_buffers), True, ignored)
        usual = int((BUCKET_MB if bucket_mb is None else bucket_mb) * 2**20)
        first = FIRST_BUCKET_BYTES if bucket_mb is None else usual
        return cls(group, model, (first, usual), broadcasts=True)

    def digests(self) -> list[str]:
        """DDP has made the copies equal; those of a plain model are the user's to make."""
        if self.under_ddp:
            return []
        flat = ((name, p.detach().cpu().contiguous().view(-1)) for name, p in self.model.named_parameters())
        return [
            f"{name} {blake2b(p.view(torch.uint8).numpy().tobytes(), digest_size=8).hexdigest()}" for name, p in flat
        ]

    def refuse_calls(self, calls: int, written: Sequence[str], where: str) -> None:
        """DDP sends buffers before each call, a step before the first alone."""
        sent = [name for name in written if name not in self.left_out]
        if calls > 1 and sent and self.broadcasts and distributed.get_world_size(self.group) > 1:
            raise CaptureError(
                f"{where}: the loss calls the model {calls} times, and each changes {sent[0]!r}, which DDP takes from "
                "rank 0 before each call, a captured step once: call it once, or give DDP broadcast_buffers=False"
            )

    def start(self, *, synced: bool) -> None:
        """Buffers become those of the first rank, where the step before reduced gradients: as DDP does it."""
        buffers = [b for name, b in self.model.named_buffers() if name not in self.left_out]
        if synced and self.broadcasts and buffers:
            with torch.no_grad():
                with_all(self.group.group_name, lambda found: _broadcast_coalesced(found, buffers, 250 * 2**20, 0))

    def reduces(self, name: str) -> bool:
        """Is the gradient of this parameter averaged? DDP does not know what only the optimizer holds."""
        outside = self.under_ddp and name.startswith("outside.")
        return not outside and name not in self.left_out

    def buckets(self, parameters: Sequence[Tensor]) -> list[list[int]]:
        """Places in `parameters`, whose gradients are complete in this order, by bucket."""
        found, _ = _compute_bucket_assignment_by_size(list(parameters), list(self.limits))
        return [list(bucket) for bucket in found]

    def flush(self, parameters: Sequence[Tensor]) -> None:
        """Average what has been added up so far."""
        held = [p for p in parameters if p.grad is not None]
        for bucket in self.buckets(held) if held else ():
            some = [held[k] for k in bucket]
            gradients = [p.grad for p in some if p.grad is not None]
            flat = all_reduce(gradients, distributed.get_world_size(self.group), self.group.group_name)
            place = 0
            for p, gradient in zip(some, gradients, strict=True):
                p.grad = flat.as_strided(gradient.shape, gradient.stride(), place)
                place += gradient.numel()
