"""What the process takes beside tensors: Python and its objects, libraries, what heaps keep."""

import os
from pathlib import Path

import torch

from lowtide.device.limit import give_back
from lowtide.device.live import live_bytes
from lowtide.errors import InputError

_STATM = Path("/proc/self/statm")


def outside_bytes() -> int:
    """As the system counts, when all that is free has been given back."""
    if not _STATM.is_file():
        raise InputError('counts="process" needs Linux, whose count of a process it takes: leave it out here')
    give_back()
    resident = int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return max(0, resident - live_bytes(torch.device("cpu")))
