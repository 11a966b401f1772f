"""`lowtide::draw`: fill a fresh tensor of given strides with random numbers, as a pure op.

Eager code draws in place (`noise.bernoulli_(p)`), and the strides of the tensor decide which element gets which number.
The out-of-place forms that functionalisation puts in their place choose their own strides, so they are not equal.
"""

import torch
from torch import Tensor
from torch._ops import OpOverload

_library = torch.library.Library("lowtide", "FRAGMENT")
_library.define(
    "draw(str how, int[] size, int[] stride, *, ScalarType dtype, Device device, float[] arguments) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)

# Every in-place random op whose result does not depend on what was in the tensor before, and whose
# arguments are plain numbers; the tensor-valued `bernoulli_.Tensor` is not among them.
DRAWS: dict[OpOverload, str] = {
    op: f"{op._schema.name.removeprefix('aten::')}.{op._overloadname}"
    for op in (
        torch.ops.aten.bernoulli_.float,
        torch.ops.aten.uniform_.default,
        torch.ops.aten.normal_.default,
        torch.ops.aten.exponential_.default,
        torch.ops.aten.geometric_.default,
        torch.ops.aten.log_normal_.default,
        torch.ops.aten.cauchy_.default,
        torch.ops.aten.random_.default,
        torch.ops.aten.random_.to,
        getattr(torch.ops.aten.random_, "from"),
    )
}
_BY_NAME = {name: op for op, name in DRAWS.items()}
_WHOLE = {name for name in _BY_NAME if name.startswith("random_")}


def _draw(
    how: str,
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
    arguments: list[float],
) -> Tensor:
    out = torch.empty_strided(size, stride, dtype=dtype, device=device)
    values = [int(a) for a in arguments] if how in _WHOLE else arguments
    _BY_NAME[how](out, *values)
    return out


def _draw_fake(
    how: str,
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype,
    device: torch.device,
    arguments: list[float],
) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


_library.impl("draw", _draw, "BackendSelect")
torch.library.register_fake("lowtide::draw", _draw_fake, lib=_library)

draw: OpOverload = torch.ops.lowtide.draw.default
