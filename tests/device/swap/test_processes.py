"""Forks, kills, exits, and a thousand rounds: nothing is left behind, and nobody else uses the space."""

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lowtide.device.swap import SwapError, SwapSpace
from lowtide.device.swap.swap_file import SwapFile
from tests.device.swap.files import GatedFile, SlowFile
from tests.device.swap.values import MIB, space_on, there_and_back

BUSY = """
import sys
from pathlib import Path
import torch
from lowtide.device.swap import open_space

space = open_space("disk", torch.device("cpu"), Path(sys.argv[1]))
space.reserve(2**26)
value = torch.ones(2**22)
for number in range(3 if sys.argv[2] == "exit" else 10**9):
    parked = space.offload(value)
    back = space.prefetch(parked)
    if number == 2:
        print("busy", flush=True)
    if number % 3 == 2:
        space.settle(parked)
        if sys.argv[2] == "kill":
            space.arrive(back)
"""


def _busy(folder: Path, end: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", BUSY, str(folder), end]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_killed_in_the_middle_of_transfers(tmp_path: Path) -> None:
    with _busy(tmp_path, "kill") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_an_interpreter_ends_with_transfers_in_flight(tmp_path: Path) -> None:
    with _busy(tmp_path, "exit") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "busy\n", "")
    assert not list(tmp_path.iterdir())


def _handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def test_nothing_leaks(tmp_path: Path) -> None:
    gc.collect()
    threads, handles = _threads(), _handles()
    space = space_on(SwapFile(tmp_path))
    value = torch.arange(50_000)
    there_and_back(space, value)
    running, open_now = _threads(), _handles()
    assert len(running) == len(threads) + 1
    for _ in range(1000):
        assert torch.equal(there_and_back(space, value), value)
    assert (_threads(), _handles()) == (running, open_now)
    assert not space._coming
    assert space._slots.free_bytes == 8 * MIB
    space.close()
    assert (_threads(), _handles()) == (threads, handles)


def test_a_space_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    gc.collect()
    threads, handles = _threads(), _handles()
    space = space_on(SwapFile(tmp_path))
    there_and_back(space, torch.ones(1000))
    parked = space.offload(torch.ones(1000))
    del space
    assert (_threads(), _handles()) == (threads, handles)
    del parked


class Squares(Dataset[int]):
    """Its workers try to use the space that their process was forked from."""

    def __init__(self, space: SwapSpace) -> None:
        self.space = space

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        with pytest.raises(SwapError, match="forked"):
            self.space.offload(torch.ones(1000))
        return index * index


def test_workers_of_a_loader_leave_the_space_alone(tmp_path: Path) -> None:
    space = space_on(SlowFile(tmp_path, 0.01))
    values = [torch.randn(MIB // 8) for _ in range(12)]
    parked = [space.offload(value) for value in values]
    backs = [space.prefetch(one) for one in parked]
    loader = DataLoader(Squares(space), num_workers=2, multiprocessing_context="fork", batch_size=None)
    assert list(loader) == [number * number for number in range(8)]
    for back, value in zip(backs, values, strict=True):
        space.arrive(back)
        assert torch.equal(back, value)
    assert torch.equal(there_and_back(space, values[0]), values[0])
    space.close()


def test_a_forked_child_lets_go_of_the_file(tmp_path: Path) -> None:
    space = space_on(SlowFile(tmp_path, 0.01))
    parked = space.offload(torch.ones(1000))
    assert _files_in(tmp_path) == 1
    child = os.fork()
    if child == 0:
        held = _files_in(tmp_path)
        space.close()
        os._exit(held)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    back = space.prefetch(parked)
    space.arrive(back)
    assert torch.equal(back, torch.ones(1000))
    space.close()


def test_no_fork_in_the_middle_of_a_transfer(tmp_path: Path) -> None:
    """The pages that direct I/O fills must not be shared with a child halfway."""
    file = GatedFile(tmp_path)
    space = space_on(file)
    parked = space.offload(torch.ones(1000))
    assert file.reached.wait(60)

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    forking = threading.Thread(target=fork)
    forking.start()
    forking.join(0.3)
    assert forking.is_alive()
    file.gate.set()
    forking.join()
    space.settle(parked)
    space.close()


def _files_in(folder: Path) -> int:
    """How many open files of this process are (or were) in `folder`."""
    links = (entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return sum(str(link.readlink()).startswith(str(folder)) for link in links)
