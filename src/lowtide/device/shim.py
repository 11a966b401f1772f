"""Builds and loads the allocator shim (shim.cpp, arena.h): the truth about CPU memory, and its addresses."""

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

_SOURCE, _ARENA = (Path(__file__).with_name(name) for name in ("shim.cpp", "arena.h"))
_SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "lowtide_install": (None, ()),
    "lowtide_current": (ctypes.c_int64, ()),
    "lowtide_peak": (ctypes.c_int64, ()),
    "lowtide_reset_peak": (None, ()),
    "lowtide_record_begin": (ctypes.c_int, ()),
    "lowtide_record_end": (ctypes.c_int64, (ctypes.c_void_p,)),
    "lowtide_record_read": (None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "lowtide_arena_open": (ctypes.c_void_p, (ctypes.c_int64,)),
    "lowtide_arena_close": (None, (ctypes.c_void_p,)),
    "lowtide_arena_live": (ctypes.c_int64, (ctypes.c_void_p,)),
    "lowtide_arena_touch": (None, (ctypes.c_void_p,)),
    "lowtide_arena_release": (None, (ctypes.c_void_p,)),
    "lowtide_release_arenas": (None, ()),
    "lowtide_layout": (ctypes.c_void_p, (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)),
    "lowtide_layout_free": (None, (ctypes.c_void_p,)),
    "lowtide_step_begin": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p)),
    "lowtide_step_end": (None, (ctypes.c_void_p,)),
}
"""Result and arguments of what the shim offers."""
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
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(shim, name)
        function.restype, function.argtypes = result, arguments
    shim.lowtide_install()
    return shim


def release_arenas() -> None:
    """The pages of all arenas that no step uses go back to the system; nothing where the shim is not loaded."""
    if load_shim.cache_info().currsize:
        load_shim().lowtide_release_arenas()


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
    key = hashlib.sha256(
        _SOURCE.read_bytes() + _ARENA.read_bytes() + torch.__version__.encode() + found.encode()
    ).hexdigest()[:16]
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
