"""From the finished fx graph to a StepGraph: storages found, views resolved, roles given."""

import operator
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.graph.ops import Op, Storage, TensorMade
from lowtide.kernels.effects import SCATTERS, can_repeat, is_random, written_arguments
from lowtide.kernels.shards import local
from lowtide.kernels.strides import PARTS
from lowtide.optimizer.update import expected_state, update
from lowtide.records.vocabulary import Phase, Purpose, Role
from lowtide.tracing.recorder import ORIGIN, Origin

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input of the graph."""

    name: str
    tensor: Tensor
    role: Role


@dataclass
class _Storages:
    """Gives each storage its number, by the identity of the fake tensors' storages."""

    by_key: dict[int, int] = field(default_factory=dict)
    found: list[Storage] = field(default_factory=list)

    def add(self, name: str, size: int, role: Role, *, resident: bool, maker: int | None = None) -> int:
        self.found.append(Storage(len(self.found), name, size, role, resident, maker))
        return len(self.found) - 1

    def of(self, value: Tensor) -> int | None:
        return self.by_key.get(value.untyped_storage()._cdata)

    def of_node(self, node: fx.Node) -> list[int]:
        found = (self.of(value) for value in _tensors(node.meta.get("val")))
        return [index for index in found if index is not None]


def _tensors(value: Any) -> Iterator[Tensor]:
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf


# These copy the whole storage behind their first argument, of which they may see a part.
_COPIES_OF_STORAGES = {
    aten.copy.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
    aten.as_strided_scatter.default,
}


def _bytes_made(node: fx.Node, value: Tensor, storages: _Storages) -> int:
    """How many bytes `value` takes. A fake tensor knows, unless it comes from torch's cache of fake results:
    that one forgets what a storage has beyond the value in it."""
    if node.target in _COPIES_OF_STORAGES:
        first = node.args[0]
        assert isinstance(first, fx.Node)
        behind = storages.of_node(first)
        if behind and torch._debug_has_internal_overlap(first.meta["val"]) != 1:  # 1: surely
            return storages.found[behind[0]].bytes
    return value.untyped_storage().nbytes()


def assemble(
    graph: fx.Graph,
    inputs: Sequence[InputTensor],
    optimizer: Optimizer | None,
    gradients: Sequence[fx.Node],
    *,
    adds: bool = False,
) -> tuple[tuple[Op, ...], tuple[Storage, ...]]:
    """The ops and storages of `graph`, whose placeholders are `inputs` in this order.

    With `adds` there are gradients of earlier micro-steps, in `.grad` of every parameter that an update moves. In
    those of parameters that the optimizer does not hold there always are.
    """
    storages = _Storages()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    _add_residents(storages, placeholders, inputs)
    state = _add_state(storages, inputs, optimizer)
    held = {id(p) for group in (optimizer.param_groups if optimizer is not None else ()) for p in group["params"]}
    names = {given.name for given in inputs if adds or id(given.tensor) not in held}
    _add_earlier_gradients(storages, graph, state, names)
    ranks: dict[int, int] = {}
    ops: list[Op] = []
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        rank = len(ops)
        origin: Origin = node.meta[ORIGIN]
        ranks.setdefault(origin.call, rank)
        items = tuple(user for user in node.users if user.target is operator.getitem)
        if node.target is update:
            ops.append(_update_op(rank, node, origin, storages, state))
            continue
        makes = []
        for value in _tensors(node.meta["val"]):
            if storages.of(value) is None:
                size = _bytes_made(node, value, storages)
                index = storages.add(node.name, size, Role.OTHER, resident=False, maker=rank)
                storages.by_key[value.untyped_storage()._cdata] = index
                makes.append(index)
        repeats, written = False, list[Any]()
        if isinstance(node.target, OpOverload):
            repeats = can_repeat(node.target, node.args, dict(node.kwargs))
            written = written_arguments(node.target, node.args, dict(node.kwargs))
        changed = [s for argument in written if isinstance(argument, fx.Node) for s in storages.of_node(argument)]
        values = [(item.name, item.meta["val"]) for item in items] or [(node.name, node.meta["val"])]
        outputs = [
            TensorMade(name, tuple(v.shape), str(v.dtype).removeprefix("torch."), storages.of(v) or 0, Role.OTHER)
            for name, value in values
            for v in _tensors(value)
        ]
        reads = dict.fromkeys(s for argument in node.all_input_nodes for s in storages.of_node(argument))
        ops.append(
            Op(
                rank=rank,
                name=node.name,
                op=_name_of(node.target),
                phase=origin.phase,
                module=origin.module,
                source=origin.source,
                outputs=tuple(outputs),
                reads=tuple(reads),
                writes=(*makes, *dict.fromkeys(changed)),
                makes=tuple(makes),
                forward=None if origin.forward_call is None else ranks.get(origin.forward_call),
                is_view=not makes and not changed and bool(outputs),
                is_random=is_random(node.target, node.args, node.kwargs),
                is_effect=bool(changed),
                overwrites=None,
                repeats=repeats,
                purpose=Purpose.PROGRAM,
                node=node,
                items=items,
            )
        )
    ops = _with_overwriting(graph, ops, storages)
    complete = {s for node in gradients for s in storages.of_node(node)}
    found = _with_roles(storages.found, ops, complete)
    return tuple(_with_output_roles(op, found) for op in ops), found


def _name_of(target: Any) -> str:
    return str(target) if isinstance(target, OpOverload) else f"lowtide.{target.__name__}"


def _add_residents(storages: _Storages, placeholders: Sequence[fx.Node], inputs: Sequence[InputTensor]) -> None:
    by_real: dict[int, int] = {}
    for node, given in zip(placeholders, inputs, strict=True):
        real = local(given.tensor).untyped_storage()
        index = by_real.get(real._cdata)
        if index is None:
            index = by_real[real._cdata] = storages.add(given.name, real.nbytes(), given.role, resident=True)
        storages.by_key[node.meta["val"].untyped_storage()._cdata] = index


def _add_state(storages: _Storages, inputs: Sequence[InputTensor], optimizer: Optimizer | None) -> dict[str, list[int]]:
    """Storages of the optimizer's state, by parameter name."""
    if optimizer is None:
        return {}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {
        given.name: [
            storages.add(f"{given.name}.{key}", size, Role.OPTIMIZER_STATE, resident=True)
            for key, size in expected_state(optimizer, given.tensor).items()
        ]
        for given in inputs
        if given.role is Role.PARAMETER and id(given.tensor) in held and given.tensor.requires_grad
    }


def _add_earlier_gradients(
    storages: _Storages, graph: fx.Graph, state: dict[str, list[int]], names: Container[str]
) -> None:
    """Storages of `.grad` of parameters called so, beside the optimizer's state: an update reads and writes them."""
    for node in graph.nodes:
        if node.target is update:
            for parameter in node.args[0]:
                name, value = parameter.meta["lowtide_name"], parameter.meta["val"]
                if name in names:
                    size = value.numel() * value.element_size()
                    state.setdefault(name, []).append(storages.add(f"{name}.grad", size, Role.GRADIENT, resident=True))


def _update_op(rank: int, node: fx.Node, origin: Origin, storages: _Storages, state: dict[str, list[int]]) -> Op:
    parameters: list[fx.Node] = node.args[0]  # type: ignore[assignment]
    gradients: list[fx.Node] = node.args[1]  # type: ignore[assignment]
    moved = [s for p in parameters for s in (*storages.of_node(p), *state.get(p.meta["lowtide_name"], []))]
    outputs = tuple(
        TensorMade(
            p.meta["lowtide_name"],
            tuple(p.meta["val"].shape),
            str(p.meta["val"].dtype).removeprefix("torch."),
            storages.of_node(p)[0],
            Role.PARAMETER,
        )
        for p in parameters
    )
    return Op(
        rank=rank,
        name=node.name,
        op="lowtide.update",
        phase=Phase.OPTIMIZER,
        module=origin.module,
        source=origin.source,
        outputs=outputs,
        reads=tuple(dict.fromkeys([*(s for g in gradients for s in storages.of_node(g)), *moved])),
        writes=tuple(dict.fromkeys(moved)),
        makes=(),
        forward=None,
        is_view=False,
        is_random=False,
        is_effect=True,
        overwrites=None,
        repeats=False,
        purpose=Purpose.PROGRAM,
        node=node,
        items=(),
    )


def _with_overwriting(graph: fx.Graph, ops: list[Op], storages: _Storages) -> list[Op]:
    """Let ops that eager runs in place do so where their first argument is theirs alone and read for the last time."""
    output = next(node for node in graph.nodes if node.op == "output")
    kept = {s for node in output.all_input_nodes for s in storages.of_node(node)}
    last = {s: op.rank for op in ops for s in op.reads}
    result = []
    for op in ops:
        origin: Origin = op.node.meta[ORIGIN]
        if origin.in_place and len(op.makes) == 1 and not op.is_effect and isinstance(op.node.target, OpOverload):
            first = op.node.args[0] if op.node.args else None
            pure = str(op.node.target) == origin.in_place.replace("_.", ".", 1)
            if isinstance(first, fx.Node) and (pure or op.node.target in SCATTERS or op.node.target in PARTS):
                (storage,) = storages.of_node(first)
                info = storages.found[storage]
                mine = not info.resident and storage not in kept and last[storage] == op.rank
                again = sum(storage in storages.of_node(n) for n in op.node.all_input_nodes)
                whole = storages.found[op.makes[0]].bytes == info.bytes
                if mine and again == 1 and whole and _same_form(first.meta["val"], op.node.meta["val"]):
                    op = replace(op, overwrites=storage)
        result.append(op)
    return result


def _same_form(old: Tensor, new: Tensor) -> bool:
    return (old.shape, old.dtype, old.stride()) == (new.shape, new.dtype, new.stride())


def _with_roles(found: Sequence[Storage], ops: Sequence[Op], complete: set[int]) -> tuple[Storage, ...]:
    """A parameter's complete gradient is a gradient; what forward makes and backward reads is an activation."""
    read_later = {s for op in ops if op.phase is not Phase.FORWARD and not op.is_view for s in op.reads}
    result = []
    for storage in found:
        role = storage.role
        if not storage.resident and storage.maker is not None:
            if storage.index in complete:
                role = Role.GRADIENT
            elif ops[storage.maker].phase is Phase.FORWARD and storage.index in read_later:
                role = Role.ACTIVATION
        result.append(replace(storage, role=role))
    return tuple(result)


def _with_output_roles(op: Op, storages: Sequence[Storage]) -> Op:
    return replace(op, outputs=tuple(replace(made, role=storages[made.storage].role) for made in op.outputs))
