"""The file has no name, is its owner's alone, and does not become memory again in the page cache."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lowtide.device.swap import swap_file
from lowtide.device.swap.swap_file import SwapFile
from tests.device.swap.values import MIB, bits, space_on, there_and_back


def without_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has no O_TMPFILE."""
    real = os.open

    def refusing(path: os.PathLike[str] | str, flags: int, *more: int, **names: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *more, **names)

    monkeypatch.setattr(os, "open", refusing)


def without_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has no direct I/O."""
    monkeypatch.setattr(swap_file, "_BLOCKS", ())


def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has."""


@pytest.mark.parametrize("make", [as_it_is, without_nameless, without_direct])
def test_nothing_to_see_for_others(
    tmp_path: Path, make: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(monkeypatch)
    file = SwapFile(tmp_path)
    space = space_on(file)
    value = torch.randn(MIB)
    assert bits(there_and_back(space, value)) == bits(value)
    status = os.fstat(file._handle)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_nlink == 0
    assert status.st_size == file.size == 8 * MIB
    assert not list(tmp_path.iterdir())
    assert not os.get_inheritable(file._handle)
    space.close()


def test_room_is_really_taken(tmp_path: Path) -> None:
    file = SwapFile(tmp_path)
    assert os.fstat(file._handle).st_size == 0
    file.grow(4 * MIB)
    assert os.fstat(file._handle).st_blocks * 512 >= 4 * MIB
    file.close()


def test_the_page_cache_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_direct(monkeypatch)
    file = SwapFile(tmp_path)
    assert file.kind == "disk, through the page cache"
    assert file.block == 1
    space = space_on(file)
    value = torch.randn(MIB)
    parked = space.offload(value)
    space.settle(parked)
    assert not _cached(file)
    space.arrive(space.prefetch(parked))
    assert not _cached(file)
    file._pread(memoryview(bytearray(MIB)), 0)
    assert _cached(file), "the test sees what is cached"
    space.close()


def _cached(file: SwapFile) -> bool:
    """Whether the first bytes could be read without waiting for the disk."""
    try:
        return os.preadv(file._handle, [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def test_memory_is_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no tmpfs on this machine")
    file = SwapFile(folder)
    assert file.in_memory
    assert "tmpfs" in file.kind
    assert file.block == 1
    space = space_on(file)
    assert space.in_memory
    assert torch.equal(there_and_back(space, torch.ones(1000)), torch.ones(1000))
    space.close()
