"""Python that numba compiles: the one place that imports it, so that nothing else waits for it."""

import logging
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
"""No check of divisors. References to arrays are not counted (`_nrt`, which numba's types do not list): none is made in
compiled code, and counting them at every call takes most of the time."""

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """A function that only compiled ones call, without the wrappers that Python would need."""
    options: dict[str, Any] = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, njit(function, **options))


def entry(function: F) -> F:
    """A function that Python calls; compiled, it is kept on disk, beside its source or in the user's cache folder.

    Where neither can be written to, every process compiles it anew.
    """
    try:
        return cast(F, njit(function, cache=True, **OPTIONS))
    except RuntimeError:  # numba found no folder
        _tell_that_nothing_is_kept()
        return cast(F, njit(function, **OPTIONS))


@cache
def _tell_that_nothing_is_kept() -> None:
    log.warning(
        "no folder can be written to that would keep the compiled planner, so every process compiles it anew: "
        "set NUMBA_CACHE_DIR to a folder of your own"
    )


def sources(folder: Path) -> str:
    """A digest of all that is compiled in a folder, and of how.

    What is kept on disk counts as fresh while the entry's own file is the same, although it contains what the other
    files were. An entry that closes over this digest is compiled anew when any of them has changed.
    """
    digest = sha256()
    for path in (Path(__file__), Path(__file__).with_name("settings.py"), *sorted(folder.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
