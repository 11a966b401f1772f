"""A model under `fully_shard`: every rank has a shard of each parameter, and forward works on gathered ones."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._common_utils import collect_grad_tensors, replace_grad_tensors
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, TrainingState
from torch.distributed.fsdp._fully_shard._fsdp_param import ShardedState
from torch.distributed.fsdp._fully_shard._fsdp_param_group import RegisterPostBackwardFunction

from lowtide.errors import CaptureError
from lowtide.kernels.collectives import gather
from lowtide.kernels.shards import is_sharded
from lowtide.parallel.alone import FOREIGN, Alone


@dataclass(frozen=True)
class ShardGroup:
    """Parameters that FSDP2 gathers and reduces together."""

    names: tuple[str, ...]
    """In FSDP2's order, which is that of its buffers."""
    module: str
    rows: tuple[int, ...]
    world: int
    group: str
    dtype: torch.dtype
    """What forward works in."""
    reduce_dtype: torch.dtype
    """What gradients are summed in."""
    own_dtype: torch.dtype
    """Of the shards."""
    replicas: str | None = None
    """The group of those who hold the same shards, under HSDP."""


@dataclass(frozen=True)
class Sharded(Alone):
    """The shards of `model`."""

    group: Any = field()  # not the default of one process
    model: nn.Module
    groups: tuple[ShardGroup, ...]

    @classmethod
    def of(cls, model: nn.Module, where: str) -> "Sharded":
        """As `fully_shard` has divided it; a CaptureError where that is not supported."""
        for module in _modules(model):
            module.reshard()
        names = {id(p): name for name, p in model.named_parameters()}
        paths = {id(module): path for path, module in model.named_modules()}
        found, meshes = [], []
        for state in _states(model):
            for held in state._fsdp_param_groups:
                params = held.fsdp_params
                if not params:
                    continue
                _refuse(held, names, where)
                meshes.append(held.mesh_info.mesh)
                policy, own = held.mp_policy, params[0].sharded_param.dtype
                dtype = (policy.param_dtype if own.is_floating_point else None) or own
                found.append(
                    ShardGroup(
                        names=tuple(names[id(p.sharded_param)] for p in params),
                        module=paths[id(held.modules[0])],
                        rows=tuple(p.sharded_param.shape[0] for p in params),
                        world=held.mesh_info.shard_mesh_size,
                        group=held.mesh_info.shard_process_group.group_name,
                        dtype=dtype,
                        reduce_dtype=policy.reduce_dtype or dtype,
                        own_dtype=own,
                        replicas=_replicas(held),
                    )
                )
        if not found:
            raise CaptureError(f"{where}: fully_shard has found no parameter in the model: there is nothing to train")
        if any(mesh != meshes[0] for mesh in meshes):
            raise CaptureError(f"{where}: the model is sharded over several meshes: lowtide supports one")
        managed = {name for group in found for name in group.names}
        for name, parameter in model.named_parameters():
            if is_sharded(parameter) and name not in managed:
                raise CaptureError(f"{where}: {name} {FOREIGN}")
        return cls(_all_of(meshes[0], where), model, tuple(found))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Of what FSDP2 does around a forward, two things are left. The casts of its MixedPrecisionPolicy, as in a
        forward that runs again inside of backward on parameters that are there; and gradients of what a module is
        given come together before they go on, which decides the order of sums."""
        states = _states(self.model)
        groups = [held for state in states for held in state._fsdp_param_groups]
        before = [state._training_state for state in states], [held._sharded_state for held in groups]
        try:
            for state in states:
                state._training_state = TrainingState.PRE_BACKWARD
            for held in groups:
                held._sharded_state = ShardedState.UNSHARDED
            for state in states:
                state._cast_forward_inputs = _Entered(state)
            yield
        finally:
            for state in states:
                vars(state).pop("_cast_forward_inputs", None)
            for state, was in zip(states, before[0], strict=True):
                state._training_state = was
                state._modules_to_run_forward.clear()
            for held, was in zip(groups, before[1], strict=True):
                held._sharded_state = was

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Afterwards parameters are shards again, and FSDP2 does not wait for a backward."""
        with ExitStack() as stack:
            stack.callback(self._forget_forward)
            yield

    def _forget_forward(self) -> None:
        for module in _modules(self.model):
            module.reshard()
        for state in _states(self.model):
            state._comm_ctx.post_forward_order.clear()
            for held in state._fsdp_param_groups:
                held._post_forward_indices.clear()

    def gathered(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every parameter whole, and in the type that forward works in."""
        whole = dict(parameters)
        for group in self.groups:
            shards = [parameters[name] for name in group.names]
            made = gather(shards, list(group.rows), group.world, group.group, dtype=group.dtype)
            whole |= dict(zip(group.names, made, strict=True))
        return whole


class _Entered:
    """What FSDP2 does with the arguments of a module's forward; once for modules that are sharded together."""

    def __init__(self, state: Any) -> None:
        self._state, self._calls = state, 0
        self._cast = state._cast_forward_inputs

    def post_backward(self) -> None:
        """Nothing is reduced in a trace."""

    def __call__(self, args: Any, kwargs: Any) -> Any:
        args, kwargs = self._cast(args, kwargs)
        first = self._calls % len(self._state._modules) == 0
        self._calls += 1
        for _ in self._state._fsdp_param_groups if first and torch.is_grad_enabled() else ():
            tensors = collect_grad_tensors((args, kwargs))
            if tensors:
                passed = RegisterPostBackwardFunction.apply(self, *tensors)
                args, kwargs = replace_grad_tensors((args, kwargs), iter(passed))
        return args, kwargs


def _modules(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _states(model: nn.Module) -> list[Any]:
    return list(dict.fromkeys(module._get_fsdp_state() for module in _modules(model)))


def _all_of(mesh: Any, where: str) -> Any:
    """The group of all ranks of a mesh."""
    if mesh.ndim == 1:
        return mesh.get_group()
    if mesh.size() != distributed.get_world_size():
        raise CaptureError(
            f"{where}: the model is spread over {mesh.size()} of {distributed.get_world_size()} ranks by a mesh of two "
            "dimensions: let the mesh take all ranks"
        )
    return distributed.group.WORLD


def _replicas(held: Any) -> str | None:
    is_hybrid = isinstance(held.mesh_info, HSDPMeshInfo)
    return str(held.mesh_info.replicate_process_group.group_name) if is_hybrid else None


def _refuse(held: Any, names: Mapping[int, str], where: str) -> None:
    """What `fully_shard` can be asked for and lowtide cannot do."""
    first = names[id(held.fsdp_params[0].sharded_param)]
    wrong = None
    if any(p.is_dtensor for p in held.fsdp_params):
        wrong = FOREIGN
    elif held.mesh_info.mesh.ndim != (2 if _replicas(held) else 1) or not isinstance(held.mesh_info, FSDPMeshInfo):
        wrong = "is spread over a mesh that is neither (shard) nor (replicate, shard): lowtide supports these two"
    elif any(p.fsdp_placement.dim != 0 for p in held.fsdp_params):
        wrong = "is sharded along another dimension than the first: leave shard_placement_fn out"
    elif len({p.sharded_param.dtype for p in held.fsdp_params}) > 1:
        wrong = "shares its group with parameters of another dtype: shard their modules apart"
    elif any(p.offload_to_cpu for p in held.fsdp_params):
        wrong = "is offloaded by CPUOffloadPolicy: leave that out, lowtide decides itself what leaves the device"
    elif held.gradient_divide_factor is not None or held.force_sum_reduction_for_comms or held._all_reduce_hook:
        wrong = "has its own way to reduce gradients (a divide factor or a hook): lowtide averages, as FSDP2 does"
    elif held.reduce_scatter_unused_params:
        wrong = "shall have a gradient where the step makes none: leave set_reduce_scatter_unused_params out"
    elif any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in held.fsdp_params):
        wrong = "is a tensor that gathers itself (fsdp_pre_all_gather), such as one of float8: use a plain tensor"
    elif not (held.reduce_grads and held.all_reduce_grads):
        wrong = "shall not have its gradients reduced: leave set_requires_gradient_sync alone, and use accumulate="
    if wrong:
        raise CaptureError(f"{where}: {first} {wrong}")
