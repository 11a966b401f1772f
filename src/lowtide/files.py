"""Writing files so that nothing half-written is ever left behind."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lowtide.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to `path` when the block ends well, removed when it does not."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
        raise InputError(f"cannot write into {path}: {error.strerror}") from error
    return path
