"""What the process takes beside tensors: Python and its objects, libraries, what heaps keep."""

import torch

from lowtide.device.limit import give_back
from lowtide.device.live import live_bytes
from lowtide.device.process import resident_bytes


def outside_bytes() -> int:
    """As the system counts, when all that is free has been given back."""
    give_back()
    return max(0, resident_bytes() - live_bytes(torch.device("cpu")))
