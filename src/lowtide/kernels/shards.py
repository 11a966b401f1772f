"""The part of a tensor that this process holds: of a DTensor its shard, of any other tensor itself."""

from typing import Any

from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """What lies in the memory of this process. DTensor is not imported for it: those who use it have done so."""
    shard: Tensor | None = getattr(tensor, "_local_tensor", None)
    return tensor if shard is None else shard


def is_sharded(tensor: Tensor) -> bool:
    """Is it a DTensor?"""
    return local(tensor) is not tensor


def whole(number: Tensor) -> Tensor:
    """A number that is spread over ranks, such as the norm of all gradients, on each of them."""
    spread: Any = number
    return spread.full_tensor() if is_sharded(number) else number


def as_gradient(parameter: Tensor, gradient: Tensor) -> Tensor:
    """`gradient` as `parameter.grad` takes it: that of a shard has the rows of the longest shard, some to spare."""
    if not is_sharded(parameter):
        return gradient
    from torch.distributed.tensor import DTensor  # slow to import, and here by now

    spread: Any = parameter
    return DTensor.from_local(
        gradient[: local(parameter).shape[0]],
        spread.device_mesh,
        spread.placements,
        run_check=False,
        shape=spread.shape,
        stride=spread.stride(),
    )
