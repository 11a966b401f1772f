"""What an aten op does besides computing: which arguments it writes, whether it draws random numbers."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from lowtide.kernels.strides import PARTS

aten = torch.ops.aten

# Ops that write running statistics although their schema says they do not:
# op -> (name of the flag that must be true, names of the arguments written).
_SILENT_WRITES: dict[OpOverload, tuple[str, tuple[str, ...]]] = {
    aten.native_batch_norm.default: ("training", ("running_mean", "running_var")),
    aten.cudnn_batch_norm.default: ("training", ("running_mean", "running_var")),
    aten.miopen_batch_norm.default: ("training", ("running_mean", "running_var")),
}


@cache
def _arguments(op: OpOverload) -> tuple[tuple[str, bool], ...]:
    """Their names, and whether the schema says that they are written. Asking a schema takes long."""
    return tuple((a.name, a.alias_info is not None and a.alias_info.is_write) for a in op._schema.arguments)


def _named_arguments(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for (name, _), value in zip(_arguments(op), args, strict=False)} | dict(kwargs)


def schema_writes(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that `op` writes into, as its schema says."""
    if not any(written for _, written in _arguments(op)):
        return []
    named = _named_arguments(op, args, kwargs)
    return [named[name] for name, written in _arguments(op) if written and name in named]


def written_arguments(op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that `op` writes into, as its schema says or, for batch norm, does not say."""
    written = schema_writes(op, args, kwargs)
    if op in _SILENT_WRITES:
        flag, names = _SILENT_WRITES[op]
        named = _named_arguments(op, args, kwargs)
        if named.get(flag):
            written += [named[name] for name in names if named.get(name) is not None]
    return written


def can_repeat(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Can `op` run a second time with the same result and without its effect?"""
    if _named_arguments(op, args, kwargs).get("generator") is not None:
        return False
    return op in _SILENT_WRITES or not written_arguments(op, args, kwargs)


def repeated_arguments(
    op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a second run: batch norm computes the same without running statistics to move."""
    if op not in _SILENT_WRITES or not written_arguments(op, args, kwargs):
        return args, kwargs
    _, dropped = _SILENT_WRITES[op]
    names = [argument.name for argument in op._schema.arguments]
    return (
        tuple(None if name in dropped else value for name, value in zip(names, args, strict=False)),
        {name: None if name in dropped else value for name, value in kwargs.items()},
    )


def _select_scatter_(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    x.select(dim, index).copy_(src)
    return x


def _slice_scatter_(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    aten.slice.Tensor(x, dim, start, end, step).copy_(src)
    return x


def _diagonal_scatter_(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x.diagonal(offset, dim1, dim2).copy_(src)
    return x


SCATTERS: dict[OpOverload, Callable[..., Tensor]] = {
    aten.select_scatter.default: _select_scatter_,
    aten.slice_scatter.default: _slice_scatter_,
    aten.diagonal_scatter.default: _diagonal_scatter_,
}
"""What becomes of a write through a view: a copy of all bytes, some of them new. In place they are written as eager
does."""


def in_place_form(op: OpOverload) -> Callable[..., Any]:
    """`aten.add_.Tensor` for `aten.add.Tensor`."""
    if op in SCATTERS:
        return SCATTERS[op]
    if op in PARTS:
        return PARTS[op]
    packet = getattr(aten, op._schema.name.removeprefix("aten::") + "_")
    form = getattr(packet, op._overloadname or "default")
    assert isinstance(form, OpOverload)
    return form


def is_random(op: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = {}) -> bool:
    """Does `op` advance the random generator? With its arguments: attention that drops nothing does not."""
    if not isinstance(op, OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    names = [name for name, _ in _arguments(op)]
    if "dropout_p" not in names or not args:
        return True
    default = op._schema.arguments[names.index("dropout_p")].default_value
    return bool(_named_arguments(op, args, kwargs).get("dropout_p", default) != 0)
