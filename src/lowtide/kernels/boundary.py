"""The boundary of a step that is called in two halves: forward returns, and the gradients of its outputs come in.

What others hold is not the step's to decide, but it fills the same device. So two tensors without bytes stand for it:
one from `opening` to `boundary`, what is there in forward alone, and one that `boundary` makes, what is there from then
on. Whoever plans says how many bytes they count.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Form = tuple[list[int], list[int], torch.dtype, torch.device]
"""Shape, strides, type and device of a tensor."""


def opening(device: torch.device) -> Tensor:
    """Stands for what others hold until the boundary."""
    return torch.empty(0, dtype=torch.uint8, device=device)


def boundary(outputs: Sequence[Tensor | None], before: Tensor, forms: Sequence[Form]) -> list[Tensor]:
    """What others hold from here on, then stand-ins for the gradients that somebody else computes from `outputs`.

    A program in one piece, as it is measured, goes on with these. One in two halves ends here and begins again with the
    true ones.
    """
    made = [torch.empty_strided(shape, stride, dtype=dtype, device=device) for shape, stride, dtype, device in forms]
    for tensor in made:
        tensor.fill_(1)
    return [opening(before.device), *made]
