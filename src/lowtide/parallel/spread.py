"""Which way a model is spread over ranks; anything unknown is refused in one sentence."""

import sys
from typing import Any

from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from lowtide.errors import CaptureError, InputError, shown
from lowtide.kernels.shards import is_sharded
from lowtide.parallel.alone import FOREIGN, Alone
from lowtide.parallel.replicated import Replicated


def spread_of(model: nn.Module, process_group: Any, bucket_mb: float | None, where: str, *, mesh: Any = None) -> Alone:
    """How `model` is spread: under DDP, under `fully_shard`, plain with a process group or a mesh, or not at all."""
    if bucket_mb is not None and (isinstance(bucket_mb, bool) or not bucket_mb > 0):
        raise InputError(f"bucket_cap_mb must be a number of MiB above 0, not {shown(bucket_mb)}")
    is_ddp, is_fsdp = isinstance(model, DistributedDataParallel), _is_fsdp(model)
    if process_group is not None and mesh is not None:
        raise InputError("process_group and mesh both say which ranks train: give one of them")
    given = process_group if mesh is None else mesh
    if bucket_mb is not None and (is_ddp or given is None):
        raise InputError(
            "bucket_cap_mb is for a plain model with process_group= or mesh=: DDP takes it in its own constructor, and "
            "fully_shard reduces group by group"
        )
    if given is None and not is_ddp and not is_fsdp:
        refuse_silent_ranks(where)
        return Alone(model)
    if not distributed.is_available() or not distributed.is_initialized():
        raise InputError("there is no process group: call torch.distributed.init_process_group first")
    if process_group is not None and (is_ddp or is_fsdp):
        raise InputError("the model has a process group of its own: leave process_group out")
    ranks = None if mesh is None else _ranks_of(mesh)
    spread: Alone | None = None
    if is_ddp:
        _refuse_ddp(model, where)
        spread = Replicated.of(model, None, None)
    if is_fsdp:
        from lowtide.parallel.sharded import Sharded

        spread = Sharded.of(model, where)
    if spread is not None:
        own = distributed.get_process_group_ranks(spread.group)
        if ranks is not None and ranks != sorted(own):
            raise InputError(
                f"mesh has the ranks {shown(ranks)}, but the model is spread over {shown(sorted(own))}: leave mesh "
                "out, the model has its own"
            )
        return spread
    if mesh is not None:
        if mesh.ndim != 1:
            raise InputError(f"mesh must have one dimension for a plain model, not {mesh.ndim}: give mesh[name]")
        process_group = mesh.get_group()
    if not isinstance(process_group, distributed.ProcessGroup):
        raise InputError(
            f"process_group must be a group of torch.distributed such as torch.distributed.group.WORLD or "
            f"mesh.get_group(), not {shown(process_group)}"
        )
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise CaptureError(f"{where}: {name} {FOREIGN}")
    return Replicated.of(model, process_group, bucket_mb)


def _ranks_of(mesh: Any) -> list[int]:
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        raise InputError(f"mesh must be a DeviceMesh of torch.distributed, not {shown(mesh)}")
    ranks = sorted(mesh.mesh.flatten().tolist())
    if distributed.get_rank() not in ranks:
        raise InputError(f"rank {distributed.get_rank()} is not in mesh, which has {shown(ranks)}: train on those only")
    return ranks


def _is_fsdp(model: nn.Module) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")  # imported only by those who use it, and slow to import
    return fsdp is not None and any(isinstance(module, fsdp.FSDPModule) for module in model.modules())


def refuse_silent_ranks(where: str) -> None:
    """Refuse to train as one of several processes that know nothing of each other, and nobody would say so."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise CaptureError(
            f"{where}: this is one of {distributed.get_world_size()} processes of torch.distributed, which would train "
            "apart: give train_step the model under DistributedDataParallel or fully_shard, or process_group= or mesh="
        )


def _refuse_ddp(model: Any, where: str) -> None:
    if model.mixed_precision is not None:
        raise CaptureError(f"{where}: DDP's mixed_precision is not supported: use torch.autocast in the loss function")
    if model._comm_hooks or hasattr(model, "buffer_hook"):
        raise CaptureError(f"{where}: DDP has a communication hook, which a captured step would not call: remove it")
    if model._delay_all_reduce_params:
        raise CaptureError(f"{where}: DDP's delay_all_reduce_named_params is not supported: leave it out")
    if not model.require_backward_grad_sync:
        raise CaptureError(f"{where}: train_step was called inside no_sync(): use accumulate= instead")
