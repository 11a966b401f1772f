"""Memory between this process and the system: a hard cap that the system keeps, and giving back what is free."""

import ctypes
import gc
import re
import resource
from pathlib import Path

import torch

from lowtide.device.shim import release_arenas
from lowtide.errors import InputError
from lowtide.units import format_bytes

_M_MMAP_THRESHOLD = -3
"""From glibc's malloc.h."""
_MAPPED = 2**18
"""Bytes from which a block is a mapping of its own."""


def limit_memory(size: int, device: str) -> None:
    """Let this process take no more than `size` bytes of `device` memory ("cpu" or "cuda") from now on.

    On CPU the cap is on the process: heap, anonymous mappings and thread stacks (RLIMIT_DATA, which the kernel counts
    as VmData), so the interpreter and its libraries count too, a few hundred MB. Large tensors are then mapped one by
    one, so that what is freed is free again: glibc keeps holes otherwise, half as much again as is in use. On CUDA it
    is on the caching allocator, which rounds and keeps blocks; the driver's own context is not counted.
    """
    if device == "cuda":
        _limit_cuda(size)
    else:
        _limit_process(size)


def give_back() -> None:
    """Free memory goes back to the operating system, or to CUDA's driver; the next step takes it anew."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing where CUDA is not in use
    release_arenas()
    trim()


def trim() -> None:
    """What the heap keeps and nobody uses goes back to the operating system."""
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is not None:
        function(0)


def usual_device() -> str:
    """Where a model that is not built yet will most likely be: CUDA where torch has it."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def process_bytes() -> int:
    """What counts towards the cap on the process at the moment."""
    status = Path("/proc/self/status")
    if not status.is_file():
        raise InputError("a memory limit on the process needs Linux: leave it out here")
    found = re.search(r"^VmData:\s+(\d+) kB$", status.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None, "every Linux process has VmData"
    return int(found.group(1)) * 2**10


def _limit_process(size: int) -> None:
    _start_threads()
    taken = process_bytes()
    if size <= taken:
        raise InputError(
            f"a memory limit of {format_bytes(size)} is too small: Python and torch alone take {format_bytes(taken)} "
            "of the process, before any model is built"
        )
    _map_large_blocks()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard not in (resource.RLIM_INFINITY, -1) and size > hard:
        raise InputError(f"the process is limited to {format_bytes(hard)} already: give a memory limit below that")
    resource.setrlimit(resource.RLIMIT_DATA, (size, hard))


def _map_large_blocks() -> None:
    """glibc raises the size from which blocks are mapped on their own to 32 MB as it goes; keep it low instead."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not mallopt(_M_MMAP_THRESHOLD, _MAPPED):
        raise RuntimeError(f"mallopt refused a threshold of {_MAPPED} bytes")


def _start_threads() -> None:
    """Kernels' threads take their stacks before the cap: a pool that cannot start ends the process without a word."""
    one = torch.ones(256, 256)
    torch.mm(one, one).add_(one).sum()


def _limit_cuda(size: int) -> None:
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if size > total:
        raise InputError(f"a memory limit of {format_bytes(size)} is more than the device has: {format_bytes(total)}")
    torch.cuda.set_per_process_memory_fraction(size / total)
