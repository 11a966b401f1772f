"""What tests of swap spaces share: small spaces, bits of values, a whole way out and back."""

import torch
from torch import Tensor

from lowtide.device.swap import SwapSpace
from lowtide.device.swap.disk import DiskSpace
from lowtide.device.swap.swap_file import SwapFile

MIB = 2**20


def space_on(file: SwapFile, capacity: int = 8 * MIB) -> DiskSpace:
    """A space in `file` with room."""
    space = DiskSpace(file)
    space.reserve(capacity)
    return space


def bits(value: Tensor) -> bytes:
    """All bytes of the storage of `value`."""
    return bytes(torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage()).cpu().numpy())


def there_and_back(space: SwapSpace, value: Tensor) -> Tensor:
    """`value` after a way out and back, each waited for."""
    parked = space.offload(value)
    space.settle(parked)
    back = space.prefetch(parked)
    space.arrive(back)
    return back
