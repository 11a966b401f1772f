"""What a step would cost, estimated from shapes alone: to plan before anything is measured, or for another device."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from lowtide.graph.liveness import live_bytes
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.collectives import COLLECTIVES, buffer_bytes
from lowtide.optimizer.update import describe
from lowtide.profiling.op_record import op_record
from lowtide.records.profile import OpRecord, PackRecord, Profile, StorageRecord

aten = torch.ops.aten
COLLECTIVE = "collective"
_KINDS = (
    (COLLECTIVE, ("_c10d_functional",)),
    ("attention", ("scaled_dot_product",)),
    ("convolution", ("convolution",)),
    ("matrix product", ("mm", "linear", "addmv", "aten.mv", "aten.dot")),
    ("normalization", ("batch_norm", "layer_norm", "group_norm", "rms_norm")),
    ("softmax", ("softmax",)),
    ("indexing", ("embedding", "index", "gather", "scatter", "nll_loss")),
    ("recurrent", ("lstm", "gru", "rnn")),
    ("update", ("update",)),
)
_WORKSPACES = {"convolution": 1.0, "batch_norm_backward": 0.35, "log_softmax": 0.0, "softmax": 0.15}
"""As a share of what an op reads and makes, the first word that fits; seen with oneDNN on two models."""


def kind_of(op: str) -> str:
    """The kind of op that has a speed of its own; all that only moves bytes is one."""
    return next((kind for kind, words in _KINDS if any(word in op for word in words)), "elementwise and copies")


@dataclass(frozen=True)
class Rates:
    """How fast a device is: an op takes the longer of moving its bytes and doing its arithmetic."""

    bytes_per_ms: float
    flops_per_ms: Mapping[str, float]
    """By dtype; float32 stands for those that are not named."""
    start_ms: float
    """Of every op."""
    times: Mapping[str, float] = field(default_factory=dict)
    """By kind of op: how much longer it was measured to take."""
    peer_bytes_per_ms: float = float("inf")
    """To another device: what a collective moves its bytes at."""
    workspaces: Mapping[str, float] = field(default_factory=lambda: _WORKSPACES)
    """By a word in the op's name: its workspace, as a share of what it reads and makes."""

    def ms(self, moved: int, flops: float, dtype: str, kind: str = "") -> float:
        """Of one op."""
        rate = self.flops_per_ms.get(dtype, self.flops_per_ms["float32"])
        return self.start_ms + self.times.get(kind, 1.0) * max(moved / self.bytes_per_ms, flops / rate)


A_CPU = Rates(bytes_per_ms=8e6, flops_per_ms={"float32": 5e7}, start_ms=0.005)
"""Two cores or so: good enough for a provisional plan, to measure the step with."""
_COUNTED_AS = {
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: aten._scaled_dot_product_flash_attention_backward,
}
"""The CPU's attention, for which torch has no formula of its own."""
RANKS = "lowtide_ranks"
"""In a node's meta: how many take part in a collective."""
_GATHERS = {aten.embedding.default, aten.index.Tensor, aten.gather.default, aten.index_select.default}
"""These read as much as they make, not all of the table."""


def estimate(graph: StepGraph, rates: Rates = A_CPU) -> Profile:
    """A profile without a single run."""
    sizes = [storage.bytes for storage in graph.storages]
    live = live_bytes(graph.ops, graph.storages, graph.lifetimes)
    ops = tuple(_record(graph, op, live[op.rank], sizes, rates) for op in graph.ops)
    packs = tuple(
        PackRecord(p.storage, p.kind, p.bytes, ms, ms, pack_workspace_B=sizes[p.storage] // 4, unpack_workspace_B=0)
        for p in graph.packings
        for ms in [rates.ms(sizes[p.storage] + p.bytes, 0.0, "")]
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


def _record(graph: StepGraph, op: Op, live: int, sizes: list[int], rates: Rates) -> OpRecord:
    touched = sum(sizes[s] for s in {*op.reads, *op.writes})
    share = next((share for word, share in rates.workspaces.items() if word in op.op), 0.0)
    ms = rates.ms(_moved(op, touched), _flops(op.node), _dtype(op), kind_of(op.op))
    return op_record(
        op,
        times=(),
        runtime_ms=0.0 if op.is_view else ms + _sent(op.node) / rates.peer_bytes_per_ms,
        live=live,
        workspace=int(share * touched) + _buffers(op.node),
        sizes=sizes,
        alone=0 if _is_fused(graph) else max((sizes[s] for s in op.reads), default=0),
    )


def _sent(node: fx.Node) -> float:
    """Bytes that a collective of tensor parallel sends, by the ring; nothing runs beside it."""
    ranks: int = node.meta.get(RANKS, 1)
    whole: int = max((x.meta["val"].nbytes for x in (node, *node.all_input_nodes)), default=0) if ranks > 1 else 0
    return (2 if "all_reduce" in str(node.target) else 1) * whole * (ranks - 1) / ranks


def _buffers(node: fx.Node) -> int:
    """Bytes that a collective of a step on several ranks takes beside what it makes."""
    if node.target not in COLLECTIVES:
        return 0
    given: Any = fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    return buffer_bytes(node.target, *given[0], **given[1])


def _is_fused(graph: StepGraph) -> bool:
    """A fused optimizer makes no temporaries."""
    return graph.optimizer is not None and all(group.get("fused") for group in graph.optimizer.param_groups)


def _moved(op: Op, touched: int) -> int:
    """Bytes read and written: of the views that an op gets, not of the storages behind them."""
    if not isinstance(op.node.target, OpOverload):
        return touched
    made = [x for x in pytree.tree_leaves(op.node.meta.get("val")) if isinstance(x, Tensor)]
    if op.node.target in _GATHERS:
        return 2 * sum(x.nbytes for x in made)
    read = [x for node in op.node.all_input_nodes for x in pytree.tree_leaves(node.meta.get("val"))]
    return sum(min(x.nbytes, x.untyped_storage().nbytes()) for x in (*read, *made) if isinstance(x, Tensor))


def _dtype(op: Op) -> str:
    """In which it computes."""
    given = [node.meta.get("val") for node in op.node.all_input_nodes]
    return next((str(x.dtype).removeprefix("torch.") for x in given if isinstance(x, Tensor)), "")


def _flops(node: fx.Node) -> float:
    """By torch's own formulas; 0 for ops that have none. Causal attention leaves half of it out."""
    if not isinstance(node.target, OpOverload):
        return 0.0
    packet = _COUNTED_AS.get(node.target._overloadpacket, node.target._overloadpacket)
    if packet not in flop_registry and packet is not aten._grouped_mm:
        return 0.0

    def value(argument: fx.Node) -> Any:
        return argument.meta["val"]

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
    if packet is aten._grouped_mm:  # of experts, for which torch has no formula: each row meets one of the matrices
        a, b = (x for x in args[:2] if isinstance(x, Tensor))
        return 2.0 * (b.numel() * a.shape[-2] if a.dim() == 3 and b.dim() == 2 else a.numel() * b.shape[-1])
    if packet is not node.target._overloadpacket:
        names = [argument.name for argument in node.target._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        tensors = [x for x in args if isinstance(x, Tensor)]
        whole = float(flop_registry[packet](*tensors, out_val=node.meta["val"]))
        return whole / 2 if given.get("is_causal") else whole
    return float(flop_registry[packet](*args, **kwargs, out_val=node.meta["val"]))
