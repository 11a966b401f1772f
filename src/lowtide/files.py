"""Writing files so that nothing half-written is ever left behind, not even by a process that was killed."""

import csv
import glob
import hashlib
import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from lowtide.errors import InputError

log = logging.getLogger(__name__)


def owned_prefix(folder: Path, prefix: str = ".lowtide-") -> str:
    """For temporary names in `folder`: `prefix`, and who makes them, this process here.

    What processes that were killed have left there under the same prefix goes.
    """
    leftover = re.compile(rf"{re.escape(prefix)}{_here()}-(\d+)-")
    for path in folder.glob(f"{glob.escape(prefix)}{_here()}-*"):
        match = leftover.match(path.name)
        if match and not _lives(int(match[1])):
            _remove(path)
    return f"{prefix}{_here()}-{os.getpid()}-"


@cache
def _here() -> str:
    """The machine, or the container, in which a process's number means something: folders can be shared by several."""
    space = Path("/proc/self/ns/pid")
    inside = os.readlink(space) if space.is_symlink() else ""  # noqa: PTH115 - it points to no file
    return hashlib.sha256(f"{socket.gethostname()} {inside}".encode()).hexdigest()[:8]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _remove(path: Path) -> None:
    try:
        if path.lstat().st_uid != os.geteuid():
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:  # another process was faster
        return
    except OSError as error:
        log.warning("cannot remove %s, which a process that was killed has left behind: %s", path, error.strerror)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to `path` when the block ends well, removed when it does not."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=owned_prefix(path.parent), suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object] | Mapping[str, object]]) -> None:
    """A table with `columns` as its head; None is an empty cell, and so is a column that a mapping does not have."""
    with (
        writing(path) as temporary,
        # A file name that is no valid Unicode may stand in a cell.
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(columns)
        for row in rows:
            if isinstance(row, Mapping):
                assert row.keys() <= set(columns), row.keys() - set(columns)
                row = [row.get(column) for column in columns]
            table.writerow(row)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, all or nothing."""
    with writing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def results_directory(path: Path, names: tuple[str, ...], *, force: bool) -> Path:
    """Make `path` ready to take the files `names`; refuse where one is there already, unless `force`."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give a folder to write the results into")
    there = [name for name in names if (path / name).exists()]
    if there and not force:
        raise InputError(f"{path} already holds results ({there[0]}); give another folder or --force")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"cannot write into {path}: {error.strerror}") from None
    return path


@contextmanager
def results(path: Path, names: tuple[str, ...], *, force: bool) -> Iterator[Path]:
    """A temporary folder for the files `names`; they move to `path` together when the block ends well.

    What can be refused is refused at once, before the block. When the block fails or is interrupted, `path` is as it
    was before, also where it was not there.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    results_directory(path, names, force=force)
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix=owned_prefix(path)) as name:
            yield Path(name)
            missing = [file for file in names if not (Path(name) / file).is_file()]
            if missing:
                raise RuntimeError(f"results without {', '.join(missing)}")
            try:
                for file in names:
                    (Path(name) / file).replace(path / file)
            except OSError as error:
                raise InputError(f"cannot write into {path}: {error.strerror}") from None
    finally:
        for folder in new:
            if not any(folder.iterdir()):
                folder.rmdir()
