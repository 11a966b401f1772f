"""Builds and loads the allocator shim (shim.cpp): the truth about CPU memory, in three functions."""

import ctypes
import errno
import hashlib
import logging
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from lowtide.errors import LowtideError
from lowtide.files import owned_prefix, writing

_SOURCE = Path(__file__).with_name("shim.cpp")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
log = logging.getLogger(__name__)


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
    with _library(found) as library:
        try:
            shim = ctypes.CDLL(str(library))
        except OSError as error:
            raise ShimError(
                f"the allocator shim does not load: {error}; remove {library}, or set XDG_CACHE_HOME to another folder"
            ) from None
    for name in ("lowtide_current", "lowtide_peak"):
        getattr(shim, name).restype = ctypes.c_int64
    for name in ("lowtide_install", "lowtide_reset_peak"):
        getattr(shim, name).restype = None
    shim.lowtide_install()
    return shim


@contextmanager
def _library(found: str) -> Iterator[Path]:
    """The compiled shim: from the user's cache, or made for this process alone where the cache cannot be used."""
    try:
        library = _cached(found)
    except OSError as error:
        log.warning(
            "%s cannot keep the allocator shim (%s), so every process compiles it anew: "
            "set XDG_CACHE_HOME to a folder of your own",
            error.filename,
            error.strerror,
        )
        prefix = owned_prefix(Path(tempfile.gettempdir()), "lowtide-shim-")
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            library = Path(folder) / "shim.so"
            _compile(found, library)
            yield library
    else:
        yield library


def _cached(found: str) -> Path:
    """The library in the user's cache, compiled where it is not there yet; OSError where the cache cannot be used."""
    folder = _cache_folder() / "lowtide"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & _OTHERS_WRITE:
        folder.chmod(0o700)
    _expect_ours(folder, stat.S_ISDIR)
    key = hashlib.sha256(_SOURCE.read_bytes() + torch.__version__.encode() + found.encode()).hexdigest()[:16]
    library = folder / f"shim-{key}.so"
    if not library.exists():
        _compile(found, library)
    _expect_ours(library, stat.S_ISREG)
    return library


def _cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a user without a home
        raise FileNotFoundError(errno.ENOENT, str(error), "~/.cache") from None


def _expect_ours(path: Path, is_kind: Callable[[int], bool]) -> None:
    """What is loaded runs as the user: nobody else may have written it."""
    found = path.lstat()
    if not is_kind(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        raise PermissionError(errno.EPERM, "others may have written it", str(path))


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
