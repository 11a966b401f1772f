"""Passes over the pure graph: what tracing leaves behind goes, what belongs together stands together."""

import operator
from collections.abc import Sequence

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from lowtide.kernels.effects import is_random, written_arguments
from lowtide.kernels.strides import restride, same_strides
from lowtide.tracing.recorder import ORIGIN

aten = torch.ops.aten
_ALIASES = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}


def drop_aliases(graph: fx.Graph) -> None:
    """Remove `detach` and its like: under no_grad they give back what they get."""
    for node in list(graph.nodes):
        if node.target in _ALIASES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


_SHAPE_ONLY = {
    aten.zeros_like.default: (aten.zeros.default, 0),
    aten.ones_like.default: (aten.ones.default, 0),
    aten.full_like.default: (aten.full.default, 1),
    aten.new_zeros.default: (aten.zeros.default, 0),
    aten.new_ones.default: (aten.ones.default, 0),
    aten.new_full.default: (aten.full.default, 1),
}


def forget_shape_sources(graph: fx.Graph) -> None:
    """`zeros_like(x)` needs the shape of x, not its bytes: say so, or x would look used."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.target not in _SHAPE_ONLY or not value.is_contiguous():
            continue
        function, filled = _SHAPE_ONLY[node.target]
        fill = [node.kwargs.get("fill_value", node.args[-1])] if filled else []
        with graph.inserting_before(node):
            plain = graph.call_function(
                function, (list(value.shape), *fill), {"dtype": value.dtype, "device": value.device}
            )
        plain.meta = dict(node.meta)
        node.replace_all_uses_with(plain)
        graph.erase_node(node)


def drop_dead(graph: fx.Graph) -> None:
    """Remove ops whose result nobody reads, unless they write something or advance the random generator."""
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function" or node.users or is_random(node.target, node.args, node.kwargs):
            continue
        if isinstance(node.target, OpOverload) and written_arguments(node.target, node.args, dict(node.kwargs)):
            continue
        graph.erase_node(node)


def gather_outputs(graph: fx.Graph) -> None:
    """Put each `getitem` right behind the op whose output it takes, so that unused outputs die at once."""
    for node in list(graph.nodes):
        if node.target is operator.getitem:
            node.args[0].append(node)


def write_early(graph: fx.Graph) -> None:
    """Move the final writes into buffers to where eager does them: behind the new value, the last read of the old."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    storage_reads: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        for argument in node.all_input_nodes:
            key = _storage(argument)
            if key is not None:
                storage_reads.setdefault(key, []).append(node)
    for node in list(graph.nodes):
        if node.target is not aten.copy_.default or node.args[0].op != "placeholder":
            continue
        key = _storage(node.args[0])
        assert key is not None
        after = [n for n in storage_reads.get(key, []) if n is not node and n.op != "output"]
        behind = max([*after, node.args[1]], key=order.__getitem__)
        if behind.op != "placeholder" and order[behind] < order[node]:
            behind.append(node)
            node.meta[ORIGIN] = node.args[1].meta.get(ORIGIN) or behind.meta.get(ORIGIN)


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, Tensor) else None


def own_gradients(
    graph: fx.Graph, gradients: Sequence[fx.Node | None], parameters: Sequence[Tensor]
) -> list[fx.Node | None]:
    """As autograd does when it fills `.grad`: a gradient in other strides than its parameter, or in bytes that are not
    its own, is copied into strides of the parameter's."""
    result: list[fx.Node | None] = []
    taken: set[int] = set()
    inputs = {_storage(node) for node in graph.nodes if node.op == "placeholder"}
    for node, parameter in zip(gradients, parameters, strict=True):
        if node is None:
            result.append(None)
            continue
        value = node.meta["val"]
        key = _storage(node)
        assert key is not None
        dense = torch._prims_common.is_non_overlapping_and_dense_or_false(parameter)
        wanted = parameter.stride() if dense else torch._prims_common.make_contiguous_strides_for(parameter.shape)
        shared = key in taken or key in inputs
        taken.add(key)
        if not shared and same_strides(value, tuple(wanted)):
            result.append(node)
            continue
        with graph.inserting_after(behind_getitems(node)):
            copied = graph.call_function(restride, (node, list(wanted)))
        with value.fake_mode:
            copied.meta["val"] = torch.empty_strided(parameter.shape, wanted, dtype=value.dtype, device=value.device)
        copied.meta[ORIGIN] = node.meta.get(ORIGIN)
        result.append(copied)
    return result


def behind_getitems(node: fx.Node) -> fx.Node:
    """The last node of the op that made `node`, its `getitem`s included."""
    last = node
    while last.next.target is operator.getitem:
        last = last.next
    return last
