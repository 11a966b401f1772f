"""The examples of several ranks run, inside their budgets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_two_processes(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", f"examples/{name}.py"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = re.findall(r"rank (\d): (\d+) of (\d+) bytes", run.stdout)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert all(int(taken) <= int(budget) for _, taken, budget in found), run.stdout
