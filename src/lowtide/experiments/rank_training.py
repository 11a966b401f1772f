"""One rank of a training over several: the model spread as DDP or FSDP2 spread it, and a batch of its own."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from torch import distributed, nn

from lowtide.errors import InputError, shown
from lowtide.models.blocks import blocks_of
from lowtide.models.training import Training


class Way(StrEnum):
    """How a model is spread over ranks."""

    DDP = "ddp"
    FSDP = "fsdp"


def find_way(name: str) -> Way:
    """Of that name."""
    if name not in tuple(Way):
        raise InputError(f"unknown way to train in parallel {shown(name)}: write {' or '.join(Way)}")
    return Way(name)


def with_own_batch(build: Callable[[int], Training], seed: int, rank: int) -> Training:
    """What `build` makes from `seed`, which all ranks share; the batch is from a seed of this rank's own."""
    training = build(seed)
    if next(training.model.parameters()).device.type != "cpu":
        raise InputError(
            f"{training.name} is not on the CPU, where the ranks of this command are: on GPUs start a script of your "
            "own with torchrun"
        )
    return training if rank == 0 else replace(training, batch=build((seed + rank) % 2**64).batch)


def spread_out(model: nn.Module, way: Way, *, reshard: bool = True) -> nn.Module:
    """`model` under DDP, or under `fully_shard`, block by block. `reshard` says whether FSDP2's own training drops what
    it has gathered after forward; the root keeps its own parameters, as FSDP2 does by default."""
    if way is Way.DDP:
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=None if reshard else False)
    return model
