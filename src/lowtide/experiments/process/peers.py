"""What people do today against running out of memory: checkpointed blocks, torch.compile with a memory budget."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lowtide.errors import InputError, shown
from lowtide.models.blocks import BLOCKS, reference_blocks
from lowtide.models.training import Training


def _checkpointed(every: int, training: Training) -> nn.Module:
    """Every so many blocks are computed again in backward."""
    blocks = reference_blocks(training.model)
    if not blocks:
        raise InputError(f"{training.name} has none of the blocks that are checkpointed here: {', '.join(BLOCKS)}")
    for block in blocks[::every]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return training.model


def _compiled(backend: str, budget: float, training: Training) -> nn.Module:
    """With that share of the bytes that autograd would save, as torch counts them."""
    import torch._functorch.config as config

    config.activation_memory_budget = budget
    compiled: Any = torch.compile(training.model, backend=backend)
    module: nn.Module = compiled
    return module


PEERS: dict[str, Callable[[Training], nn.Module]] = {
    "checkpoint": partial(_checkpointed, 1),
    "checkpoint every second": partial(_checkpointed, 2),
    **{
        f"compile {name} {budget}": partial(_compiled, backend, budget)
        for name, backend in (("aot", "aot_eager_decomp_partition"), ("inductor", "inductor"))
        for budget in (1.0, 0.5, 0.2, 0.0)
    },
}


def find_peer(name: str) -> Callable[[Training], nn.Module]:
    """Makes the model of that peer."""
    if name not in PEERS:
        raise InputError(f"unknown peer {shown(name)}: write one of {', '.join(PEERS)}")
    return PEERS[name]
