"""Finds the in-place ops whose out-of-place form would leave its result in other strides, and keeps the strides."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from lowtide.errors import CaptureError
from lowtide.kernels.draw import DRAWS
from lowtide.kernels.strides import is_dense, part_form, pure_form
from lowtide.tracing.recorder import ORIGIN

aten = torch.ops.aten
_Marks = np.ndarray[Any, np.dtype[np.bool_]]


def keep_strides(graph: fx.Graph) -> None:
    """Replace such ops by their pure form in the same strides.

    Where something else looks at the bytes they overwrite, the result is copied there, which keeps the strides too.
    A part of a tensor with gaps is written in a new version of the whole tensor, as the gaps would be copied too.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    sharing: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        if isinstance(node.meta.get("val"), Tensor):
            sharing.setdefault(node.meta["val"].untyped_storage()._cdata, []).append(node)
    given = {node.meta["val"].untyped_storage()._cdata for node in graph.nodes if _is_given(node)}
    for node in list(graph.nodes):
        _refuse_overlap(node)
        target = _overwritten(node)
        if target is None or not _other_strides(node, target):
            continue
        if _is_part(target) and all(order[user] <= order[node] for user in (*node.users, *target.users)):
            continue  # nobody reads the result under this name: a slice is assigned to, and its base is read
        storage = target.meta["val"].untyped_storage()._cdata
        others = sharing[storage]
        if storage not in given and not is_dense(target.meta["val"]) and (whole := _whole(others, order[node], order)):
            _written_in_whole(graph, node, target, whole, others, order)
            continue
        with graph.inserting_before(node):
            pure = graph.call_function(pure_form(node.target, _numbers(node)), node.args, node.kwargs)
        pure.meta = dict(node.meta)
        order[pure] = order[node]
        # The user looks at his own tensors after the step.
        if storage in given or any(_looks_later(other, node, target, order) for other in others):
            with graph.inserting_before(node):
                copied = graph.call_function(aten.copy_.default, (target, pure))
            copied.meta = dict(node.meta)
            order[copied] = order[node]
            node.replace_all_uses_with(copied)
            others.append(copied)
        else:
            node.replace_all_uses_with(pure)
            for user in [user for user in target.users if order[user] > order[node]]:
                user.replace_input_with(target, pure)
        graph.erase_node(node)
    graph.lint()


def _whole(others: list[fx.Node], place: int, order: dict[fx.Node, int]) -> fx.Node | None:
    """Of those that share a storage the newest that covers it all and is made before `place`; None where some look at
    the bytes as other numbers, as views of another dtype do."""
    values: list[Tensor] = [other.meta["val"] for other in others]
    if any(x.dtype != values[0].dtype or x.is_conj() or x.is_neg() for x in values):
        return None
    for other in reversed(others):
        value: Tensor = other.meta["val"]
        if order[other] < place and value.nbytes == value.untyped_storage().nbytes() and is_dense(value):
            return other
    return None


def _written_in_whole(
    graph: fx.Graph, node: fx.Node, target: fx.Node, whole: fx.Node, others: list[fx.Node], order: dict[fx.Node, int]
) -> None:
    """Replace the in-place op `node` by one that makes a new version of `whole`, and let everybody who looks at the
    storage later look at that one."""
    assert isinstance(node.target, OpOverload)
    part: Tensor = target.meta["val"]
    where = (list(part.shape), list(part.stride()), part.storage_offset())
    now = order[node]

    def add(function: OpOverload, like: fx.Node, *args: Any, **kwargs: Any) -> fx.Node:
        added = graph.call_function(function, args, kwargs)
        added.meta = dict(node.meta) | {"val": like.meta["val"]}
        order[added] = now
        others.append(added)
        return added

    with graph.inserting_before(node):
        form = part_form(node.target, _numbers(node))
        made = add(form, whole, whole, *where, *node.args[1:], **node.kwargs)
        for other in list(others):
            later = [user for user in other.users if order[user] > now]
            if other is made or order[other] > now or not later:
                continue
            value: Tensor = other.meta["val"]
            view = made
            if other is not whole:
                shape, stride = list(value.shape), list(value.stride())
                view = add(aten.as_strided.default, other, made, shape, stride, value.storage_offset())
            for user in later:
                user.replace_input_with(other, view)
    others.remove(node)
    graph.erase_node(node)


def _refuse_overlap(node: fx.Node) -> None:
    """Refuse to write where several elements of a view are one in memory: what comes of it depends on the order."""
    if not isinstance(node.target, OpOverload):
        return
    for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, fx.Node):
            written: Tensor = value.meta["val"]
            if torch._debug_has_internal_overlap(written) and _distinct(written) < written.numel():
                raise CaptureError(
                    f"{node.meta[ORIGIN].source}: an op in place writes through a view whose elements overlap "
                    "(unfold, as_strided), which cannot be planned: clone it first, with .clone()"
                )


def _distinct(x: Tensor) -> int:
    """How many elements of its storage a view covers."""
    marks = np.zeros(x.untyped_storage().nbytes() // x.element_size(), dtype=bool)
    _region(marks, x)[...] = True
    return int(marks.sum())


def _is_part(target: fx.Node) -> bool:
    """Is it a view of some of its storage's bytes only?"""
    value: Tensor = target.meta["val"]
    return value.nbytes < value.untyped_storage().nbytes()


def _overwritten(node: fx.Node) -> fx.Node | None:
    """What an in-place op overwrites; None for every other op. Draws and copies are not in need of help.

    Nor is `unsqueeze_` and its like, which gives a tensor another shape and touches no bytes.
    """
    if not isinstance(node.target, OpOverload) or node.target in DRAWS or node.target is aten.copy_.default:
        return None
    if torch.Tag.inplace_view in node.target.tags:
        return None
    written = [a for a in node.target._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if len(written) != 1 or written[0].name != "self" or len(node.target._schema.returns) != 1:
        return None
    target = node.args[0]
    return target if isinstance(target, fx.Node) else None


def _is_given(node: fx.Node) -> bool:
    return node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor)


def _numbers(node: fx.Node) -> frozenset[str]:
    """The arguments that are numbers where the op's schema says Tensor."""
    assert isinstance(node.target, OpOverload)
    arguments = node.target._schema.arguments
    given = dict(zip((a.name for a in arguments), node.args, strict=False)) | node.kwargs
    tensors = [a.name for a in arguments if str(a.type) == "Tensor"]
    return frozenset(name for name in tensors if isinstance(given.get(name), int | float | bool | complex))


def _other_strides(node: fx.Node, target: fx.Node) -> bool:
    """Would the out-of-place form leave its result in other strides than `target` has?"""
    assert isinstance(node.target, OpOverload)
    value: Tensor = target.meta["val"]
    functional = _out_of_place(node.target)
    if functional is None:
        return False
    with value.fake_mode, torch.no_grad():  # type: ignore[attr-defined]
        args = map_arg(node.args, lambda argument: argument.meta["val"])
        kwargs = map_arg(node.kwargs, lambda argument: argument.meta["val"])
        made = functional(*args, **kwargs)
    return any(
        size > 1 and have != want for size, have, want in zip(value.shape, made.stride(), value.stride(), strict=True)
    )


@cache
def _out_of_place(op: OpOverload) -> OpOverload | None:
    """The form of an in-place op that takes the same arguments and writes none; overloads may have other names."""

    def takes(form: OpOverload) -> list[tuple[str, str]]:
        return [(argument.name, str(argument.type)) for argument in form._schema.arguments]

    packet = getattr(aten, op._schema.name.removeprefix("aten::").removesuffix("_"), None)
    forms = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    return next((form for form in forms if takes(form) == takes(op)), None)


def _looks_later(other: fx.Node, node: fx.Node, target: fx.Node, order: dict[fx.Node, int]) -> bool:
    """Does somebody read through `other`, made before `node`, bytes that `node` overwrites, after it did?

    What is made from the result of `node` will be made from the result of its pure form.
    """
    if other is target or order[other] >= order[node] or all(order[user] <= order[node] for user in other.users):
        return False
    return _overlap(other.meta["val"], target.meta["val"])


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Do two views of one storage share an element?"""
    if a.dtype != b.dtype:
        return True
    marks = np.zeros(a.untyped_storage().nbytes() // a.element_size(), dtype=bool)
    _region(marks, a)[...] = True
    return bool(_region(marks, b).any())


def _region(marks: _Marks, x: Tensor) -> _Marks:
    """The elements of a storage, marked in `marks`, that a view covers."""
    return np.lib.stride_tricks.as_strided(marks[x.storage_offset() :], x.shape, x.stride())
