"""When two Python values mean the same to a trace."""

import array
import enum
import types
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    enum.Enum,
    range,
    slice,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
ARRAYS = (np.ndarray, array.array, bytearray)
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class _Missing:
    """Where a name has no value."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
ANY = object()
"""In the place of a value that may change: it is read anew at every step."""

Copies = dict[int, Any]
"""Shallow copies of the containers that were seen, by identity: what they held then."""


def same(before: Any, now: Any, copies: Copies, known: Mapping[int, Any] | None = None) -> bool:
    """Is `now` what `before` was? Plain values by type and value, containers by what they hold, all else by identity.

    `copies` has what containers held before. `known` maps stand-ins, such as fake tensors, to what they stand for.
    """
    if known is not None:
        before, now = known.get(id(before), before), known.get(id(now), now)
    if before is now or before is ANY:
        return True  # what is inside of it has a holder of its own
    if type(before) is not type(now):
        return False
    if isinstance(before, PLAIN):
        if not before:  # 0.0 is not -0.0
            return repr(before) == repr(now)
        return bool(before == now) or (before != before and now != now)
    if isinstance(before, CONTAINERS):
        return same_contents(copies.get(id(before), before), now, copies, known)
    if isinstance(before, np.ndarray):
        held = copies.get(id(before), before)
        return bool(held.dtype == now.dtype and held.shape == now.shape and held.tobytes() == now.tobytes())
    if isinstance(before, ARRAYS):
        return bool(before == now)
    if isinstance(before, types.MethodType):
        return before.__self__ is now.__self__ and before.__func__ is now.__func__
    if isinstance(before, weakref.ref):
        return same(before(), now(), copies, known)
    return False


def same_contents(before: Any, now: Any, copies: Copies, known: Mapping[int, Any] | None = None) -> bool:
    """Does a container hold what its copy does?"""
    if len(before) != len(now):
        return False
    if isinstance(now, dict):
        keys = all(a is b or (isinstance(a, PLAIN) and a == b) for a, b in zip(before, now, strict=True))
        return keys and all(same(a, b, copies, known) for a, b in zip(before.values(), now.values(), strict=True))
    if isinstance(now, set | frozenset):
        return bool(before == now)
    return all(same(a, b, copies, known) for a, b in zip(before, now, strict=True))


def shallow(value: Any) -> Any:
    """What a container or an array holds now, as a copy of a builtin kind."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, set | frozenset):
        return set(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    return list(value)


def tensor_form(x: Tensor) -> tuple[object, ...]:
    """What a trace takes for granted about a tensor that it reads by reference; its values are not among it."""
    hooks = x._backward_hooks, x._post_accumulate_grad_hooks if x.is_leaf else None
    return (
        x.shape,
        x.stride() if x.layout is torch.strided else None,
        x.dtype,
        x.device,
        x.requires_grad,
        *(tuple(map(id, h.values())) if h else None for h in hooks),
    )


def described(value: Any, limit: int = 60) -> str:
    """A value in an error or in the log: short."""
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, PLAIN) or (isinstance(value, CONTAINERS) and len(value) < 20):
        text = repr(value)
        return text if len(text) <= limit else text[:limit] + "..."
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return value.__qualname__
    return str(value) if value is MISSING else f"a {type(value).__name__}"
