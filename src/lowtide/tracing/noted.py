"""An op of a trace written into the graph as make_fx does it, without what it asks of each op and what is never so.

Four of five ops of a step are plain ones, on tensors without data that the tracer knows already: no constants, no sizes
by values, nothing that torch would take apart first. Whatever is otherwise goes the way of make_fx.
"""

import operator
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    _is_proxy_tensor_update_tensor_tracker_disabled,
    _ProxyTensor,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)

aten = torch.ops.aten
_NUMBERS = frozenset(
    (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)
"""Types of arguments that stand in a graph as they are; whole numbers alone, no symbols."""
_OTHERWISE = {aten.lift_fresh.default, aten.is_nonzero.default}
_BY_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


class _Unusual(Exception):
    """An argument that make_fx knows what to do with."""


@cache
def _is_plain(func: OpOverload, device: str | None) -> bool:
    """Would make_fx write it down without more ado, where the first tensor that it gets is on such a `device`?"""
    if func.namespace != "aten" or func in _OTHERWISE or any(tag in func.tags for tag in _BY_VALUES):
        return False
    composite = DispatchKey.CompositeImplicitAutograd
    if composite not in func.py_kernels and not _has_kernel(func, composite.name):
        return True
    return device is not None and _has_kernel(func, torch._C._dispatch_key_for_device(device))  # else it is taken apart


def _has_kernel(func: OpOverload, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def noted(mode: ProxyTorchDispatchMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `func` gives; it is in the graph of `mode` then."""
    usual = not mode.pre_dispatch and not mode.emulate_precision_casts and func not in mode.decomposition_table
    if not usual or not isinstance(func, OpOverload) or not _is_plain(func, _device(args)):
        return func(*args, **kwargs)
    if _is_proxy_tensor_update_tensor_tracker_disabled():
        return func(*args, **kwargs)
    tracer: Any = mode.tracer
    args, kwargs = _without_absent(func, args, kwargs)
    try:
        known = tracer.tensor_tracker
        given = tuple(_node(x, known) for x in args)
        named = {name: _node(x, known) for name, x in kwargs.items()}
    except _Unusual:
        return func(*args, **kwargs)
    graph = tracer.graph
    node = graph.create_node("call_function", func, given, named, graph._target_to_str(func.overloadpacket.__name__))
    with disable_proxy_modes_tracing():
        out = func(*args, **kwargs)
    proxy = fx.Proxy(node, tracer)
    if _is_fake(out):
        _track(out, proxy, known)
    elif type(out) is tuple and all(x is None or _is_fake(x) for x in out):
        items = [_item(proxy, place) for place in range(len(out))]
        node.meta["val"] = tuple(
            None if x is None else _track(x, item, known) for x, item in zip(out, items, strict=True)
        )
    else:
        track_tensor_tree(out, proxy, constant=None, tracer=tracer)
    return out


def _device(args: Sequence[Any]) -> str | None:
    """Of the first tensor."""
    for x in args:
        if type(x) is FakeTensor:
            return x.fake_device.type
        if type(x) is list and x and (found := _device(x)) is not None:
            return found
    return None


def _without_absent(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Leave out what is None by default: a tensor that autograd does not have comes as None the first time."""
    count = len(args)
    while count and args[count - 1] is None and _is_none_by_default(func._schema.arguments[count - 1]):
        count -= 1
    if any(x is None for x in kwargs.values()):
        absent = {x.name for x in func._schema.arguments if _is_none_by_default(x)}
        kwargs = {name: x for name, x in kwargs.items() if x is not None or name not in absent}
    return args[:count], kwargs


def _is_none_by_default(argument: Any) -> bool:
    return bool(argument.has_default_value()) and argument.default_value is None


def _node(x: Any, known: Any) -> Any:
    """What stands for the argument `x` in the graph."""
    kind = type(x)
    if kind in _NUMBERS:
        return x
    if kind is FakeTensor:
        entry = known.get(x)
        if entry is None or entry.constant is not None:
            raise _Unusual
        return entry.proxy.node
    if kind is list or kind is tuple:
        return kind(_node(element, known) for element in x)
    raise _Unusual


def _is_fake(x: Any) -> bool:
    return type(x) is FakeTensor and all(type(size) is int for size in x.shape)


def _item(proxy: fx.Proxy, place: int) -> fx.Proxy:
    node = proxy.node.graph.create_node("call_function", operator.getitem, (proxy.node, place), {})
    return fx.Proxy(node, proxy.tracer)


def _track(x: FakeTensor, proxy: fx.Proxy, known: Any) -> Tensor:
    """From here on `proxy` stands for `x`; returns `x` as it is now, whatever is done to its form later."""
    known[x] = _ProxyTensor(proxy, None)
    value = proxy.node.meta["val"] = fast_detach(x.fake_mode, x)
    return value
