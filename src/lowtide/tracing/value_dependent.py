"""Functions of torch whose derivative looks at values: their gradient is left to eager's autograd, as one op.

The derivative of `prod` divides by the factors unless one of them is zero, that of `max()` shares the gradient among
equal elements in one way for real tensors and in another for fake ones, and so on. They are caught above autograd.
So are a few functions that eager computes in another way where no gradient is wanted: a trace never gets there.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, set_proxy_slot
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lowtide.errors import CaptureError
from lowtide.kernels.eager import EagerCall, eager, eager_gradient
from lowtide.tracing.replaced import meant
from lowtide.tracing.source import user_line

_PRODUCTS: set[Callable[..., Any]] = {torch.prod, Tensor.prod}
_EXTREMES: set[Callable[..., Any]] = {
    getattr(owner, name) for owner in (torch, Tensor) for name in ("max", "min", "median", "nanmedian")
}
_POOLS: set[Callable[..., Any]] = {torch.max_pool1d, F.max_pool1d}
_SPECTRA = ("svdvals", "eigvals", "eigvalsh", "matrix_norm", "matrix_rank", "cond")
_CHEAPER_WITHOUT = _POOLS | {getattr(torch.linalg, name) for name in _SPECTRA}
_FILLS: set[Callable[..., Any]] = {torch.masked_fill, Tensor.masked_fill}


class ValueDependent(TorchFunctionMode):
    """Catches these functions while forward is traced; `given` are the tensors that the trace starts from."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        super().__init__()
        self._given = {x.untyped_storage()._cdata for x in given if x.layout is torch.strided}
        self.replaced: dict[int, tuple[Tensor, Tensor]] = {}
        """By identity, the tensors whose `.data` was set, behind what they were."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        func, kwargs = meant(func), kwargs or {}
        if func == _SET_DATA:
            return self._set_data(*args)
        if func in _CHEAPER_WITHOUT and not (torch.is_grad_enabled() and _wants_gradient(args[0])):
            return _without_gradient(func, args, kwargs)
        if func in _CASTING and torch.is_autocast_enabled(args[0].device.type):
            raise CaptureError(
                f"{user_line()}: {func.__name__} takes part in autocast inside of its kernel, and a captured one "
                "cannot: call it with autocast switched off"
            )
        if func in _SHUFFLES and (kwargs.get("groups") or args[1]) in (1, args[0].shape[1]):
            return args[0].clone(memory_format=suggest_memory_format(args[0]))
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if func in _PRODUCTS and _wants_gradient(args[0]):
            return _differentiate(func, (_cast(args[0]), *args[1:]), kwargs)
        whole = func in _EXTREMES and len(args) == 1 and not kwargs and _wants_gradient(args[0])
        if whole or (func in _FILLS and _filled_by_variable(args, kwargs)):
            return _differentiate(func, args, kwargs)
        if func is Tensor.masked_fill_ and _filled_by_variable(args, kwargs):
            raise CaptureError(
                f"{user_line()}: masked_fill_ with a value that wants a gradient picks elements one by one in "
                "backward, which cannot be captured in place: use masked_fill"
            )
        if func is F.cross_entropy and _is_weighted_and_smooth(args, kwargs):
            if torch.is_autocast_enabled(args[0].device.type):
                raise CaptureError(
                    f"{user_line()}: cross_entropy with weight and label_smoothing looks at the labels, and under "
                    "autocast it cannot be captured: call it with autocast switched off"
                )
            return _differentiate(func, args, kwargs, opaque=True)
        return func(*args, **kwargs)

    def _set_data(self, x: Tensor, value: Tensor) -> None:
        """`x.data = value` goes past the tracer, which is told. What `x` held before gets the new values at the end."""
        of_x, of_value = (t.untyped_storage()._cdata for t in (x, value))
        form, new_form = ((t.shape, t.dtype, t.stride(), t.storage_offset()) for t in (x, value))
        if of_x == of_value and form == new_form:
            return
        shared = not isinstance(value, FakeTensor) or of_value in self._given
        if shared or (x.shape, x.dtype) != (value.shape, value.dtype):
            raise CaptureError(
                f"{user_line()}: the step sets .data of a tensor to "
                f"{'memory that is there already' if shared else 'another shape or dtype'}, which a captured step "
                "cannot do: write into it with .copy_()"
            )
        with torch._C.DisableTorchFunction(), torch.no_grad():
            before, mode = x.data, get_proxy_mode()
            if not isinstance(x, FakeTensor):
                before.copy_(value)
                return
            x.data = value
            if mode is not None:
                set_proxy_slot(x, mode.tracer, get_proxy_slot(value, mode.tracer))
        self.replaced.setdefault(id(x), (before, x))


_SET_DATA = Tensor.data.__set__  # type: ignore[attr-defined]
_CASTING = {F.bilinear, torch.bilinear, F.affine_grid, torch.affine_grid_generator, torch.linalg.pinv, torch.pinverse}
_SHUFFLES = {F.channel_shuffle, torch.channel_shuffle}
"""With one group, or one for each channel, its meta function gives back what it gets, its kernel a copy."""


def refuse_fast_path(module: nn.Module) -> None:
    """Refuse attention that eager runs as one fused op, without gradients in eval mode: a trace never gets that op."""
    if not isinstance(module, nn.TransformerEncoderLayer | nn.MultiheadAttention) or module.training:
        return
    learns = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
    if torch.backends.mha.get_fastpath_enabled() and not learns:
        raise CaptureError(
            f"{user_line()}: a frozen {type(module).__name__} in eval mode takes torch's fast path, which cannot be "
            "traced and rounds differently: switch it off with torch.backends.mha.set_fastpath_enabled(False)"
        )


def _wants_gradient(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _without_gradient(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Singular values without vectors are another algorithm; a pool that keeps no indices gives a contiguous result."""
    if func in _POOLS:
        indices = kwargs.get("return_indices", False)
        return func(*args, **kwargs) if indices else func(args[0].contiguous(), *args[1:], **kwargs)
    with torch.no_grad():
        return _differentiate(func, args, kwargs, opaque=True)


def _filled_by_variable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return _wants_gradient(kwargs.get("value", args[2] if len(args) > 2 else None))


def _is_weighted_and_smooth(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """With both, the sum of the weights is taken over the labels that are not ignored, picked one by one."""
    target = kwargs.get("target", args[1] if len(args) > 1 else None)
    weight = kwargs.get("weight", args[2] if len(args) > 2 else None)
    mean = kwargs.get("reduction", "mean") == "mean"
    classes = isinstance(target, Tensor) and not target.is_floating_point()
    return bool(weight is not None and kwargs.get("label_smoothing") and mean and classes)


def _cast(x: Tensor) -> Tensor:
    """As autocast does, which multiplies in float32."""
    low = x.dtype in (torch.bfloat16, torch.float16)
    return x.float() if low and torch.is_autocast_enabled(x.device.type) else x


def _differentiate(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], opaque: bool = False
) -> Any:
    call, tensors = EagerCall.of(func, args, kwargs)
    return _Differentiated.apply(call, opaque, *tensors)  # type: ignore[no-untyped-call]


class _Differentiated(torch.autograd.Function):
    """A call whose backward is one op."""

    @staticmethod
    def forward(ctx: Any, call: EagerCall, opaque: bool, *tensors: Tensor) -> Any:
        """The function itself, or one op for it where forward looks at values too."""
        ctx.call = call
        ctx.save_for_backward(*tensors)
        with torch._C._DisableAutocast():
            return eager(list(tensors), call.name) if opaque else call(list(tensors))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Gradients of the tensors that want one."""
        if torch.is_grad_enabled():
            raise CaptureError(
                f"{user_line()}: the derivative of {ctx.call.name} looks at values and is not differentiated again "
                "in a captured step: leave it out of what is differentiated with create_graph=True"
            )
        wanted = list(ctx.needs_input_grad[2:])
        found = iter(eager_gradient(gradient, list(ctx.saved_tensors), ctx.call.name, wanted))
        return (None, None, *(next(found) if want else None for want in wanted))
