"""`lowtide::<op>_<overload>`: an in-place aten op as a pure one that keeps the strides of what it would overwrite.

`x.add_(y)` leaves its result in the strides of x. The out-of-place `x.add(y)` chooses its own, and strides decide
which kernel reads the result later, hence the last bit. Where the two differ, the graph uses this form instead: copy
in the same strides, then the in-place kernel itself.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")


@cache
def pure_form(op: OpOverload, numbers: frozenset[str] = frozenset()) -> OpOverload:
    """The pure form of the in-place `op`, defined when first asked for.

    aten takes a Python number where its schema says Tensor, other ops do not: `numbers` names such arguments.
    """
    name = "_".join([f"{op._schema.name.removeprefix('aten::')}{op._overloadname}", *sorted(numbers)])
    schema = str(op._schema).replace("(a!)", "")
    for number in numbers:
        schema = schema.replace(f"Tensor {number}", f"Scalar {number}")
    _library.define(f"{name}{schema[schema.index('(') :]}")

    def run(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=self.device).copy_(self)
        op(out, *args, **kwargs)
        return out

    def fake(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=self.device)

    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"lowtide::{name}", fake, lib=_library)
    packet = getattr(torch.ops.lowtide, name)
    assert isinstance(packet.default, OpOverload)
    return packet.default
