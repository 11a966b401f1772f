"""Nothing is left behind: not when a block fails, and not for ever when a process is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.files import _here, owned_prefix, results, write_text, writing

KILLED = """
import os, signal, sys
from pathlib import Path
from lowtide.files import results, writing
folder = Path(sys.argv[1])
with results(folder, ("a.txt",), force=False) as temporary, writing(folder / "plan.json") as half:
    (temporary / "a.txt").write_text("a")
    half.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_leaves_goes_at_the_next_start(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    left = sorted(path.name for path in tmp_path.iterdir())
    assert [name.startswith(".lowtide-") for name in left] == [True, True]
    with results(tmp_path, ("a.txt",), force=False) as temporary:
        assert list(tmp_path.iterdir()) == [temporary]
        write_text(tmp_path / "plan.json", "whole")
        (temporary / "a.txt").write_text("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "plan.json"]


def dead_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_only_what_is_ours_and_dead_goes(tmp_path: Path) -> None:
    dead = dead_process()
    elsewhere = "0" * 8
    stays = [
        f".lowtide-{_here()}-{os.getpid()}-x",
        f".lowtide-{_here()}-{os.getppid()}-x",
        f".lowtide-{_here()}-x",
        f".lowtide-{_here()}-{dead}",
        f".lowtide-{elsewhere}-{dead}-x",
        f"lowtide-{_here()}-{dead}-x",
        ".lowtide-notes",
    ]
    goes = [f".lowtide-{_here()}-{dead}-x", f".lowtide-{_here()}-{dead}-y"]
    for name in (*stays, *goes):
        (tmp_path / name).mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tmp_path / goes[1]).rmdir()
    (tmp_path / goes[1]).symlink_to(outside)
    (tmp_path / goes[0] / "file").touch()
    assert owned_prefix(tmp_path) == f".lowtide-{_here()}-{os.getpid()}-"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*stays, "outside"])
    assert (outside / "file").exists(), "a link goes, what it points to does not"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_somebody_else_made_stays(tmp_path: Path) -> None:
    path = tmp_path / f".lowtide-{_here()}-{dead_process()}-x"
    path.mkdir()
    os.chown(path, 12345, -1)
    owned_prefix(tmp_path)
    assert path.exists()


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing(tmp_path / "file.json"):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), results(tmp_path / "new", ("a",), force=False):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_name_as_long_as_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 240 + ".json")
    write_text(path, "text")
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
