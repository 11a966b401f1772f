"""Memory that is free but kept by the allocator, given back to the system."""

import ctypes
import gc

import torch


def give_back() -> None:
    """Free memory goes back to the operating system, or to CUDA's driver; the next step takes it anew."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing where CUDA is not in use
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
