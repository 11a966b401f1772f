"""Builds and loads the allocator shim (shim.cpp): the truth about CPU memory, in three functions."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch

from lowtide.errors import LowtideError
from lowtide.files import writing

_SOURCE = Path(__file__).with_name("shim.cpp")


class ShimError(LowtideError, RuntimeError):
    """The allocator shim did not compile or load although a compiler is there."""


def compiler() -> str | None:
    """The C++ compiler, `$CXX` or g++; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


@cache
def load_shim() -> ctypes.CDLL:
    """Compile (once per torch version, kept in the user's cache), load and install the shim."""
    found = compiler()
    if found is None:
        raise ShimError("the allocator shim needs a C++ compiler: install g++ or set CXX")
    key = hashlib.sha256(_SOURCE.read_bytes() + torch.__version__.encode() + found.encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lowtide"
    base.mkdir(parents=True, exist_ok=True)
    library = base / f"shim-{key}.so"
    if not library.exists():
        _compile(found, library)
    try:
        shim = ctypes.CDLL(str(library))
    except OSError as error:
        raise ShimError(f"the allocator shim does not load: {error}; remove {library} and try again") from error
    for name in ("lowtide_current", "lowtide_peak"):
        getattr(shim, name).restype = ctypes.c_int64
    for name in ("lowtide_install", "lowtide_reset_peak"):
        getattr(shim, name).restype = None
    shim.lowtide_install()
    return shim


def _compile(found: str, library: Path) -> None:
    root, abi = Path(torch.__file__).parent, int(torch.compiled_with_cxx11_abi())
    with writing(library) as temporary:
        command = [
            found, "-O2", "-std=c++20", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
            f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}", str(_SOURCE),
            f"-L{root / 'lib'}", "-lc10", f"-Wl,-rpath,{root / 'lib'}", "-o", str(temporary),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ShimError(f"the allocator shim does not compile with {found}:\n{done.stderr.strip()}")
