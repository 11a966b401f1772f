"""This process as the operating system counts it: memory that is there, its highest mark, page faults. Linux."""

import ctypes
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lowtide.device.limit import trim
from lowtide.errors import InputError

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
"""From glibc's malloc.h."""


@contextmanager
def warm_memory() -> Iterator[None]:
    """Inside, the allocator keeps what is freed, instead of giving it back to the system and taking it anew.

    So eager code too has no page faults after its first steps: the control that steps at planned addresses are compared
    with. Afterwards the allocator is as it becomes by itself once large blocks have come and gone.
    """
    allocator = ctypes.CDLL(None)
    if not hasattr(allocator, "mallopt"):
        raise InputError("this system's allocator cannot be told to keep its memory: measure on Linux with glibc")
    for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, 2**28)):
        allocator.mallopt(option, value)
    try:
        yield
    finally:
        usual = ((_M_MMAP_MAX, 2**16), (_M_MMAP_THRESHOLD, 2**25), (_M_TRIM_THRESHOLD, 2**26), (_M_TOP_PAD, 2**17))
        for option, value in usual:
            allocator.mallopt(option, value)
        trim()


def resident_bytes() -> int:
    """Memory of this process that is there at the moment (VmRSS)."""
    return _status("VmRSS")


def high_water_bytes() -> int:
    """The most there was since `forget_high_water` (VmHWM)."""
    return _status("VmHWM")


def forget_high_water() -> None:
    """The mark goes down to what is there now."""
    _CLEAR.write_text("5", encoding="ascii")


def page_faults() -> int:
    """So far: pages that were taken from the system, without those read from disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _status(name: str) -> int:
    if not _STATUS.is_file():
        raise InputError("the memory of a process is read as Linux tells it: run this there")
    found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None, f"every Linux process has {name}"
    return int(found.group(1)) * 2**10
