"""Passes for a step of several ranks: parameters are gathered late, gradients reduced as soon as they are complete."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, distributed, fx

from lowtide.kernels.collectives import all_reduce, all_reduce_total, gather, reduce_scatter, shard_rows
from lowtide.optimizer.update import Micro, UpdateForm
from lowtide.parallel.alone import Alone
from lowtide.parallel.replicated import Replicated
from lowtide.records.vocabulary import Phase
from lowtide.tracing.cleanup import behind_getitems
from lowtide.tracing.recorder import ORIGIN, Origin

aten = torch.ops.aten


def gather_late(graph: fx.Graph) -> None:
    """Put each gathering of parameters right before the first op that reads one of them."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target is gather:
            readers = [user for item in node.users for user in item.users]
            first = min(readers, key=order.__getitem__)
            for item in node.users:
                first.prepend(item)
            next(iter(node.users)).prepend(node)


def reduced(
    graph: fx.Graph,
    gradients: Mapping[str, fx.Node],
    parameters: Mapping[str, Tensor],
    spread: Alone,
    ending: UpdateForm,
) -> dict[str, fx.Node]:
    """For every parameter the gradient that it moves by: that of all ranks, as a view of the buffer it came in.

    What is reduced together stands behind the last gradient of it. Copies of a model are reduced in the last of several
    micro-steps, shards in each, as there is room for no more than their own part of a gradient.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    found = dict(gradients)
    if isinstance(spread, Replicated):
        if ending.moves:
            names = sorted((n for n in gradients if spread.reduces(n)), key=lambda n: order[gradients[n]])
            for k, bucket in enumerate(spread.buckets([parameters[n] for n in names])):
                found |= _all_reduced(graph, [names[i] for i in bucket], gradients, spread, ending, order, k)
        return found
    for k, group in enumerate(getattr(spread, "groups", ())):
        names = [name for name in group.names if name in gradients]
        if not names:
            continue
        given = [gradients[name] for name in names]
        options = {"by": group.reduce_dtype, "dtype": group.own_dtype, "replicas": group.replicas}
        node = _inserted(graph, reduce_scatter, (given, group.world, group.group), options, given, order, k)
        shapes = [gradient.meta["val"].shape for gradient in given]
        padded = [(shard_rows(shape[0], group.world), *shape[1:]) for shape in shapes]
        views = [(size, torch._prims_common.make_contiguous_strides_for(size)) for size in padded]
        found |= _viewed(graph, node, names, views)
    return found


def _all_reduced(
    graph: fx.Graph,
    names: Sequence[str],
    gradients: Mapping[str, fx.Node],
    spread: Replicated,
    ending: UpdateForm,
    order: Mapping[fx.Node, int],
    number: int,
) -> dict[str, fx.Node]:
    given = [gradients[name] for name in names]
    arguments: tuple[Any, ...] = (given, distributed.get_world_size(spread.group), spread.group.group_name)
    target: Any = all_reduce
    if ending.micro is Micro.LAST:
        inputs = {node.meta["lowtide_name"]: node for node in graph.nodes if node.op == "placeholder"}
        target, arguments = all_reduce_total, ([inputs[name] for name in names], *arguments)
    node = _inserted(graph, target, arguments, {}, given, order, number)
    views = [(tuple(g.meta["val"].shape), tuple(g.meta["val"].stride())) for g in given]
    return _viewed(graph, node, names, views)


def _inserted(
    graph: fx.Graph,
    target: Any,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    given: Sequence[fx.Node],
    order: Mapping[fx.Node, int],
    number: int,
) -> fx.Node:
    """A collective behind the last of what it is `given`."""
    last = max(given, key=order.__getitem__)
    name = "reduce_scatter" if target is reduce_scatter else "all_reduce"
    with graph.inserting_after(behind_getitems(last)):
        node = graph.create_node("call_function", target, arguments, options, name=f"{name}_{number}")
    pure = all_reduce if target is all_reduce_total else target
    plain = arguments[1:] if target is all_reduce_total else arguments
    with last.meta["val"].fake_mode:
        node.meta["val"] = pure(*fx.node.map_arg(plain, lambda n: n.meta["val"]), **options)
    behind: Origin = last.meta[ORIGIN]
    node.meta[ORIGIN] = replace(behind, phase=Phase.BACKWARD, forward_call=None, in_place="")
    return node


def _viewed(
    graph: fx.Graph, node: fx.Node, names: Sequence[str], views: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> dict[str, fx.Node]:
    """The parts of the buffer that `node` makes, by parameter."""
    found, place, last = {}, 0, node
    for name, (size, stride) in zip(names, views, strict=True):
        with graph.inserting_after(last):
            called = f"reduced_{''.join(c if c.isalnum() else '_' for c in name)}"
            view = graph.create_node(
                "call_function", aten.as_strided.default, (node, list(size), list(stride), place), name=called
            )
        with node.meta["val"].fake_mode:
            view.meta["val"] = node.meta["val"].as_strided(size, stride, place)
        view.meta[ORIGIN] = node.meta[ORIGIN]
        found[name] = last = view
        place += prod(size)
    return found


def note_gathers(nodes: Sequence[fx.Node], spread: Alone, line: str) -> None:
    """Say of the traced nodes that gather parameters where they come from: before any op of the model."""
    modules = iter(group.module for group in getattr(spread, "groups", ()))
    module = ""
    for node in nodes:
        module = next(modules) if node.target is gather else module
        node.meta[ORIGIN] = Origin(Phase.FORWARD, module, line, 0)


def whole_form(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Shape and strides of all of a parameter, of which this rank may hold a shard."""
    return torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device="meta")
