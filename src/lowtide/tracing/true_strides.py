"""Corrects the strides of traced results where torch's meta functions claim others than its kernels give.

A trace believes the meta functions, and strides decide what comes next: whether `reshape` copies, whether `linear`
folds its batch, which kernel sums. So they are corrected while tracing, before anybody asks.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, disable_fake_tensor_cache
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten
Strides = tuple[int, ...]
_Form = tuple[tuple[int, ...], Strides]
"""Shape and strides."""
_ONE_TENSOR_TWICE = {aten.mkldnn_rnn_layer_backward.default}
_Rule = Callable[[_Form, tuple[Any, ...]], Strides]


def _iterator(first: int, second: int) -> _Rule:
    """An elementwise kernel over two arguments, the first of them deciding."""

    def rule(made: _Form, args: tuple[Any, ...]) -> Strides:
        return _product(_form(args[first]), _form(args[second]))

    return rule


def _in_half(made: _Form, args: tuple[Any, ...]) -> Strides:
    """An elementwise op whose meta function casts to float32 first, which lays out anew what is expanded."""
    first, second = args[:2]
    if not all(isinstance(x, Tensor) and x.dtype in (torch.bfloat16, torch.float16) for x in (first, second)):
        return made[1]
    return _product(_form(first), _form(second))


def _contiguous(made: _Form, args: tuple[Any, ...]) -> Strides:
    return _empty(made[0], torch.contiguous_format)


def _format_of(argument: int) -> _Rule:
    """Channels-last where the argument is, else contiguous."""

    def rule(made: _Form, args: tuple[Any, ...]) -> Strides:
        return _empty(made[0], _suggested(_form(args[argument])))

    return rule


def _as(argument: int) -> _Rule:
    def rule(made: _Form, args: tuple[Any, ...]) -> Strides:
        return _empty_like(_form(args[argument]))

    return rule


@contextmanager
def true_aliases(func: OpOverload, args: tuple[Any, ...]) -> Iterator[None]:
    """torch's cache of fake results forgets that two results of one op are the same tensor: it is left out there."""
    modes = [x.fake_mode for x in args if isinstance(x, FakeTensor)] if func in _ONE_TENSOR_TWICE else []
    with disable_fake_tensor_cache(modes[0]) if modes else nullcontext():
        yield


def _form(x: Tensor) -> _Form:
    return tuple(x.shape), x.stride()


def _without_data(form: _Form) -> Tensor:
    return torch.empty_strided(*form, device="meta")


# A model has many ops and few shapes: what was found once is known.
@cache
def _product(a: _Form, b: _Form) -> Strides:
    # `mul` is such a kernel, and its meta function is the one that the kernel itself uses
    with _disable_current_modes():
        return (_without_data(a) * _without_data(b)).stride()


@cache
def _suggested(form: _Form) -> torch.memory_format:
    with _disable_current_modes():
        return suggest_memory_format(_without_data(form))


@cache
def _empty(shape: tuple[int, ...], memory_format: torch.memory_format) -> Strides:
    with _disable_current_modes():
        return torch.empty(shape, device="meta", memory_format=memory_format).stride()


@cache
def _empty_like(form: _Form) -> Strides:
    with _disable_current_modes():
        return torch.empty_like(_without_data(form)).stride()


# What the kernels do on a CPU, found by running them in all layouts; tests/tracing/test_same_kernels.py compares.
_RULES: dict[OpOverload, _Rule] = {
    **dict.fromkeys(
        (getattr(aten, name).Tensor for name in ("add", "sub", "mul", "div", "fmod", "remainder")), _in_half
    ),
    **dict.fromkeys((getattr(aten, name).Tensor for name in ("eq", "ne", "lt", "le", "gt", "ge")), _in_half),
    **dict.fromkeys((getattr(aten, name).default for name in ("maximum", "minimum", "atan2", "hypot")), _in_half),
    aten.pow.Tensor_Tensor: _in_half,
    aten.logit_backward.default: _iterator(0, 1),
    aten.threshold_backward.default: _iterator(1, 0),
    aten.leaky_relu_backward.default: _iterator(1, 0),
    aten.hardtanh_backward.default: _iterator(0, 1),
    aten.hardswish_backward.default: _iterator(0, 1),
    aten.hardsigmoid_backward.default: _iterator(0, 1),
    aten.elu_backward.default: _iterator(0, 5),
    aten.softplus_backward.default: _iterator(0, 1),
    aten.rrelu_with_noise_backward.default: _iterator(2, 0),
    aten._prelu_kernel_backward.default: _iterator(1, 0),
    aten.copysign.Tensor: _iterator(0, 1),
    aten.logaddexp.default: _iterator(0, 1),
    aten.logaddexp2.default: _iterator(0, 1),
    aten.div.Tensor_mode: _iterator(0, 1),
    aten.xlogy.Tensor: _iterator(0, 1),
    aten.polar.default: _iterator(0, 1),
    aten.complex.default: _iterator(0, 1),
    aten.rrelu_with_noise.default: _contiguous,
    aten.log_sigmoid_forward.default: _contiguous,
    aten.log_sigmoid_backward.default: _as(0),
    aten.glu_backward.default: _contiguous,
    aten._log_softmax_backward_data.default: _contiguous,
    aten.pow.Scalar: _contiguous,
    aten.native_layer_norm_backward.default: _contiguous,
    aten.mse_loss_backward.default: _contiguous,
    aten.smooth_l1_loss_backward.default: _contiguous,
    aten.huber_loss_backward.default: _contiguous,
    aten.binary_cross_entropy_backward.default: _as(1),
    aten.native_batch_norm.default: _format_of(0),
    aten.native_batch_norm_backward.default: _format_of(1),
    aten.native_group_norm_backward.default: _format_of(1),
    aten.roll.default: _format_of(0),
    aten.channel_shuffle.default: _format_of(0),
    aten.max_unpool2d.default: _format_of(0),
    aten.reflection_pad2d_backward.default: _format_of(1),
    aten.replication_pad2d_backward.default: _format_of(1),
}


def correct_strides(func: OpOverload, args: tuple[Any, ...], out: Any, nodes: Iterable[fx.Node]) -> None:
    """Give `out`, which `func` has made of `args`, and the values noted on its `nodes`, the strides of the kernel."""
    rule = _RULES.get(func)
    if rule is None:
        return
    noted = [node.meta.get("val") for node in nodes]
    values = [x for x in pytree.tree_leaves([out, noted]) if isinstance(x, Tensor) and x.device.type == "cpu"]
    wanted = [rule(_form(x), args) if x.dim() > 1 else x.stride() for x in values]
    wrong = [(value, strides) for value, strides in zip(values, wanted, strict=True) if value.stride() != strides]
    if wrong:
        with disable_proxy_modes_tracing():
            for value, strides in wrong:
                value.as_strided_(value.shape, strides)
