"""A model that holds no data (`torch.device("meta")`), made ready for a trace: everything on it has shapes alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from lowtide.tracing.joint import standing_in


@contextmanager
def with_shapes_alone(model: nn.Module, optimizer: Optimizer | Callable[[nn.Module], Optimizer]) -> Iterator[Optimizer]:
    """Inside, what `model` and `optimizer` hold on the meta device claims to be on the CPU and takes no bytes.

    An optimizer that refuses the meta device, as fused ones do, is made inside, by a function. Real tensors stay: a
    trace takes none of them for its own.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    groups = optimizer.param_groups if isinstance(optimizer, Optimizer) else []
    held = (*model.parameters(), *model.buffers(), *(p for group in groups for p in group["params"]))
    stand_ins = {id(tensor): _stand_in(tensor, mode) for tensor in {id(x): x for x in held}.values() if tensor.is_meta}
    before = [list(group["params"]) for group in groups]
    try:
        with standing_in(model, stand_ins):
            _renew_lists(model)
            for group in groups:
                group["params"] = [stand_ins.get(id(p), p) for p in group["params"]]
            yield optimizer if isinstance(optimizer, Optimizer) else optimizer(model)
    finally:
        _renew_lists(model)
        for group, params in zip(groups, before, strict=True):
            group["params"] = params


def _renew_lists(model: nn.Module) -> None:
    """torch's recurrent layers keep a list of their parameters beside the parameters."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module._init_flat_weights()


def _stand_in(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    with mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


class kernels_of_a_gpu(TorchFunctionMode):  # noqa: N801 - used as a context
    """Inside, attention and dropout keep what a GPU's kernels keep.

    Attention: the output and one number for each row, also with dropout. The CPU has a kernel like that, but none with
    dropout: there it keeps all probabilities, so dropout is left out. Dropout: a byte for each number, where the CPU
    keeps a number.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
            kwargs = dict(zip(names, args, strict=False)) | kwargs | {"dropout_p": 0.0}
            args = tuple(kwargs.pop(name) for name in names[:3])
        if func is dropout:
            given: dict[str, Any] = {"p": 0.5, "training": True, "inplace": False}
            given |= dict(zip(("input", *given), args, strict=False)) | kwargs
            if given["training"] and 0 < given["p"] < 1 and not given["inplace"]:
                return torch.native_dropout(given["input"], given["p"], True)[0]
        return func(*args, **kwargs)
