"""Tensors of the user's that a trace really writes to: kept aside and put back.

A trace works on stand-ins, but a tensor that it meets outside of its inputs, such as a weight of a teacher that the
loss averages, is the user's own. torch's fake tensors run arithmetic between such a tensor and a number for real.
"""

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from lowtide.kernels.effects import written_arguments


class RealWrites:
    """Copies of what was there before the first write."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def note(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`func` is about to run."""
        for x in pytree.tree_leaves(written_arguments(func, args, kwargs)):
            if isinstance(x, Tensor) and not isinstance(x, FakeTensor) and x.device.type != "meta":
                storage = x.untyped_storage()
                if storage._cdata not in self._before:
                    with _disable_current_modes():
                        self._before[storage._cdata] = (storage, storage.clone())

    def restore(self) -> None:
        """As it was."""
        for storage, before in self._before.values():
            storage.copy_(before)
