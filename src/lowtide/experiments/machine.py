"""The machine and the versions that something was measured with, and how much memory is left on it."""

import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from lowtide.errors import InputError


@dataclass(frozen=True, slots=True)
class Machine:
    """What figures can be compared within: times of another machine or another torch are other times."""

    processor: str
    cores: int
    memory_B: int
    system: str
    python: str
    torch: str
    lowtide: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} cores, torch {self.torch}, lowtide {self.lowtide}"


def this_machine() -> Machine:
    """Processor, memory and versions."""
    if not sys.platform.startswith("linux"):
        raise InputError("experiments read the machine's memory as Linux tells it: run them there")
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_B=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=platform.system(),
        python=platform.python_version(),
        torch=version("torch"),
        lowtide=version("lowtide"),
    )


def available_bytes() -> int:
    """Memory that new processes can take without pushing anything out."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None, "every Linux says MemAvailable"
    return int(found.group(1)) * 2**10


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()
