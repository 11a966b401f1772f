"""This process as the operating system counts it: memory that is there, its highest mark, page faults. Linux."""

import re
import resource
from pathlib import Path

from lowtide.errors import InputError

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
WARM = {
    "MALLOC_MMAP_THRESHOLD_": str(2**34),
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
    "MALLOC_TOP_PAD_": str(2**28),
}
"""An environment in which glibc keeps what it has: no page faults after the first steps, for eager code too."""


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
