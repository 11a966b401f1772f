"""Disks fail. What failed is said where it is waited for, in one sentence; other values and later steps are as ever."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import torch
from torch import Tensor

from lowtide.device import shim
from lowtide.device.meter import ShimMeter
from lowtide.device.swap import SwapError, open_space
from lowtide.device.swap.disk import DiskSpace, ParkedOnDisk
from lowtide.device.swap.lane import Cancelled
from lowtide.device.swap.swap_file import SwapFile
from tests.device.swap.files import (
    Fault,
    FaultyFile,
    GatedFile,
    disk_full,
    failing,
    no_progress,
    one_block,
    right,
)
from tests.device.swap.values import MIB, space_on, there_and_back

CPU = torch.device("cpu")
FAULTS: dict[str, tuple[list[Fault], str]] = {
    "full": ([failing(errno.ENOSPC)], "No space left on device"),
    "broken": ([failing(errno.EIO)], "Input/output error"),
    "stuck": ([one_block, one_block, no_progress], "moves no more bytes"),
}


@pytest.fixture
def file(tmp_path: Path) -> FaultyFile:
    return FaultyFile(tmp_path)


@pytest.fixture
def space(file: FaultyFile) -> Iterator[DiskSpace]:
    opened = space_on(file)
    yield opened
    opened.close()


def test_no_room_to_begin_with(file: FaultyFile, space: DiskSpace) -> None:
    value = torch.randn(MIB)
    parked = space.offload(value)
    file.room = [disk_full()]
    with pytest.raises(
        SwapError, match=f"no room for 16.0 MiB .* in {file.folder}: No space left on device; free some"
    ):
        space.reserve(16 * MIB)
    assert os.fstat(file._handle).st_size == 8 * MIB
    back = space.prefetch(parked)
    space.arrive(back)
    assert torch.equal(back, value)
    space.reserve(16 * MIB)


def test_more_than_the_disk_has_is_refused_without_filling_it(space: DiskSpace) -> None:
    with pytest.raises(SwapError, match=r"no room for 1024\.00 TiB"):
        space.reserve(2**50)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_write_that_fails(file: FaultyFile, space: DiskSpace, kind: str) -> None:
    file.writes, says = FAULTS[kind]
    file.writes = [right, *file.writes]
    values = [torch.randn(MIB // 4) for _ in range(3)]
    parked = [space.offload(value) for value in values]
    torn = space.prefetch(parked[1])
    space.settle(parked[2])
    for _ in range(2):
        with pytest.raises(SwapError, match=f"writing 1.00 MiB .* in {file.folder} failed: .*{says}"):
            space.settle(parked[1])
    with pytest.raises(SwapError, match=says):
        space.arrive(torn)
    for index in (0, 2):
        space.settle(parked[index])
        back = space.prefetch(parked[index])
        space.arrive(back)
        assert torch.equal(back, values[index])
    assert torch.equal(there_and_back(space, values[1]), values[1])


@pytest.mark.parametrize("kind", FAULTS)
def test_a_read_that_fails(file: FaultyFile, space: DiskSpace, kind: str) -> None:
    file.reads, says = FAULTS[kind]
    file.reads = [right, *file.reads]
    values = [torch.randn(MIB // 4) for _ in range(3)]
    parked = [space.offload(value) for value in values]
    backs = [space.prefetch(one) for one in parked]
    with pytest.raises(SwapError, match=f"reading 1.00 MiB .* in {file.folder} failed: .*{says}"):
        space.arrive(backs[1])
    for index in (0, 2):
        space.arrive(backs[index])
        assert torch.equal(backs[index], values[index])
    again = space.prefetch(parked[1])
    space.arrive(again)
    assert torch.equal(again, values[1])


def test_short_transfers_are_continued(file: FaultyFile, space: DiskSpace) -> None:
    file.writes, file.reads = [one_block] * 20, [one_block] * 7
    value = torch.randn(MIB // 4)
    assert torch.equal(there_and_back(space, value), value)
    assert not file.writes
    assert not file.reads


def test_a_bug_in_the_thread_is_not_hidden(file: FaultyFile, space: DiskSpace) -> None:
    def bug(*_: object) -> int:
        raise ZeroDivisionError("a bug")

    file.writes = [bug]
    with pytest.raises(ZeroDivisionError, match="a bug"):
        space.settle(space.offload(torch.ones(1000)))
    there_and_back(space, torch.ones(1000))


@pytest.mark.skipif(shim.compiler() is None, reason="no C++ compiler on this machine")
def test_a_failed_transfer_keeps_no_memory(file: FaultyFile, space: DiskSpace) -> None:
    """Frames of a kept exception would hold the value that its step wants to free."""
    meter = ShimMeter()
    meter.start()
    file.writes = [failing(errno.EIO)]
    value: Tensor | None = torch.ones(MIB)
    assert value is not None
    parked = space.offload(value)
    with pytest.raises(SwapError):
        space.settle(parked)
    value = None
    assert meter.stop().net == 0


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SwapError, match=f"no swap file can be made in {tmp_path}/gone: No such file .*another folder"):
        open_space("disk", CPU, tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(SwapError, match="Not a directory"):
        open_space("disk", CPU, tmp_path / "file")


def test_a_folder_that_vanishes_later(tmp_path: Path) -> None:
    folder = tmp_path / "swap"
    folder.mkdir()
    space = space_on(SwapFile(folder))
    folder.rmdir()
    value = torch.randn(MIB)
    assert torch.equal(there_and_back(space, value), value)
    space.reserve(16 * MIB)
    space.close()


def test_recover_in_the_middle_of_transfers(tmp_path: Path) -> None:
    file = GatedFile(tmp_path)
    space = space_on(file, 4 * MIB)
    values = [torch.randn(MIB // 4) for _ in range(4)]
    parked = [space.offload(value) for value in values]
    coming = space.prefetch(parked[0])
    assert file.reached.wait(60)
    file.gate.set()
    space.recover()
    for call in (lambda: space.settle(parked[0]), lambda: space.prefetch(parked[1])):
        with pytest.raises(SwapError, match="forgotten"):
            call()
    with pytest.raises(SwapError, match="not on its way"):
        space.arrive(coming)
    value = torch.randn(MIB)  # takes all the room, although the old ones are still held, and keeps it when they die
    kept = space.offload(value)
    parked.clear()
    with pytest.raises(SwapError, match="reserve more"):
        space.offload(values[0])
    space.settle(kept)
    back = space.prefetch(kept)
    space.arrive(back)
    assert torch.equal(back, value)
    space.close()


def test_recover_calls_off_what_has_not_started(tmp_path: Path) -> None:
    file = GatedFile(tmp_path)
    space = space_on(file)
    first, later = space.offload(torch.ones(1000)), space.offload(torch.ones(1000))
    assert isinstance(first, ParkedOnDisk)
    assert isinstance(later, ParkedOnDisk)
    assert file.reached.wait(60)
    recovering = Thread(target=space.recover)
    recovering.start()
    assert later.written._done.wait(30)
    assert isinstance(later.written.failure, Cancelled)
    assert recovering.is_alive()
    file.gate.set()
    recovering.join()
    assert first.written.failure is None
    space.close()
