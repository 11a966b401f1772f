"""Device bytes that are alive now, whoever holds them."""

import gc

import torch
from torch import Tensor

from lowtide.device import cuda


def live_bytes(device: torch.device) -> int:
    """All tensors on `device`. The CPU's allocator does not know, so there every tensor that Python can reach counts:
    what autograd alone holds does not, so ask while no backward is due."""
    if cuda.type_of(device) == "cuda":
        return cuda.asked_bytes(cuda.indexed(device))[0]
    gc.collect()
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), Tensor) and torch._C._has_storage(thing):
            storage = thing.untyped_storage()
            if storage.device == device:
                found[storage._cdata] = storage.nbytes()
    return sum(found.values())
