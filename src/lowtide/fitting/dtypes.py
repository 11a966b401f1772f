"""In which numbers a step computes: its weights and batch converted, or torch's autocast over weights in float32."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from lowtide.models import Training
from lowtide.tracing.loss import Loss, model_loss

_KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
AUTOCAST = "amp-"
DTYPES = (*_KINDS, f"{AUTOCAST}bf16", f"{AUTOCAST}fp16")
_IN_FLOAT32: set[Callable[..., Any]] = {
    *(functional.layer_norm, functional.group_norm, functional.softmax, functional.log_softmax, functional.nll_loss),
    *(functional.cross_entropy, functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss),
    *(torch.softmax, torch.log_softmax, torch.pow, torch.exp, torch.log, torch.rsqrt, torch.sum, torch.cumsum),
    *(Tensor.softmax, Tensor.log_softmax, Tensor.pow, Tensor.exp, Tensor.log, Tensor.rsqrt, Tensor.sum, Tensor.cumsum),
}
"""Of what torch's autocast computes in float32 on a GPU, and on a CPU does not: what models have as a rule."""


def in_dtype(training: Training, dtype: str | None) -> Training:
    """The same step in `dtype`, one of DTYPES; as it was built without."""
    if dtype is None:
        return training
    if dtype.startswith(AUTOCAST):
        return replace(training, loss=_under_autocast(training.loss, _KINDS[dtype.removeprefix(AUTOCAST)]))
    kind = _KINDS[dtype]
    training.model.to(kind)
    batch = tree_map_only(Tensor, lambda x: x.to(kind) if x.is_floating_point() else x, training.batch)
    return replace(training, batch=batch)


def _under_autocast(loss: Loss | None, kind: torch.dtype) -> Loss:
    def under(model: nn.Module, batch: Any) -> Any:
        with torch.autocast("cpu", kind), _Float32():
            return model_loss(model, batch) if loss is None else loss(model, batch)

    return under


class _Float32(TorchFunctionMode):
    """What a GPU's autocast computes in float32."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _IN_FLOAT32:
            args, kwargs = tree_map_only(
                Tensor, lambda x: x.float() if x.is_floating_point() and x.element_size() < 4 else x, (args, kwargs)
            )
        return func(*args, **kwargs)
