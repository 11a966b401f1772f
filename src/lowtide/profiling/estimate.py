"""What a step would cost, estimated from shapes alone: good enough for a provisional plan, to measure it with."""

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from lowtide.graph.liveness import live_bytes
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import describe
from lowtide.profiling.op_record import op_record
from lowtide.records.profile import OpRecord, PackRecord, Profile, StorageRecord

_BYTES_PER_MS = 8e6
_FLOPS_PER_MS = 5e7
_CALL_MS = 0.005
# Workspaces as a share of what an op reads and makes; seen with oneDNN on two models.
_WORKSPACES = {"convolution": 1.0, "batch_norm_backward": 0.35, "softmax": 0.15}


def estimate(graph: StepGraph) -> Profile:
    """A profile without a single run."""
    sizes = [storage.bytes for storage in graph.storages]
    live = live_bytes(graph.ops, graph.storages, graph.lifetimes)
    ops = tuple(_record(graph, op, live[op.rank], sizes) for op in graph.ops)
    packs = tuple(
        PackRecord(p.storage, p.kind, p.bytes, ms, ms, pack_workspace_B=sizes[p.storage] // 4, unpack_workspace_B=0)
        for p in graph.packings
        for ms in [2 * sizes[p.storage] / _BYTES_PER_MS]
    )
    return Profile(
        model=type(graph.model).__name__,
        optimizer=describe(graph.optimizer),
        batch=(),
        device=str(graph.device),
        device_memory_B=0,
        memory_source="estimate",
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        warmup=0,
        runs=0,
        step_ms=sum(op.runtime_ms for op in ops),
        step_spread_ms=0.0,
        step_peak_B=max(op.peak_mem_B for op in ops),
        storages=tuple(StorageRecord(s.name, s.bytes, s.role, s.resident, None, None) for s in graph.storages),
        ops=ops,
        activations=(),
        packs=packs,
        transfer=(),
        transfer_tier="",
        transfer_drag=0.0,
        layers=graph.layers,
    )


def _record(graph: StepGraph, op: Op, live: int, sizes: list[int]) -> OpRecord:
    touched = sum(sizes[s] for s in {*op.reads, *op.writes})
    share = next((share for word, share in _WORKSPACES.items() if word in op.op), 0.0)
    return op_record(
        op,
        times=(),
        runtime_ms=0.0 if op.is_view else _CALL_MS + touched / _BYTES_PER_MS + _flops(op.node) / _FLOPS_PER_MS,
        live=live,
        workspace=int(share * touched),
        sizes=sizes,
        alone=max((sizes[s] for s in op.reads), default=0),
    )


def _flops(node: fx.Node) -> float:
    """By torch's own formulas; 0 for ops that have none."""
    if not isinstance(node.target, OpOverload) or node.target._overloadpacket not in flop_registry:
        return 0.0

    def value(argument: fx.Node) -> Any:
        return argument.meta["val"]

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
    return float(flop_registry[node.target._overloadpacket](*args, **kwargs, out_val=node.meta["val"]))
