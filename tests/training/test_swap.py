"""Training whose values leave the device: equal, inside the budget whatever the disk does, unharmed by its faults."""

import errno
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.device.swap import SwapError
from lowtide.device.swap.disk import DiskSpace
from lowtide.device.swap.swap_file import SwapFile
from lowtide.errors import InputError
from lowtide.forecast import Forecast
from lowtide.records.transfer import TransferSample
from lowtide.training import swap_use
from lowtide.training.train_step import TrainStep
from tests.device.swap.files import FaultyFile, SlowFile, disk_full, failing, no_progress
from tests.equality import Trained, differences, eager_step
from tests.zoo import often

BUDGET = "60%"


def net() -> nn.Sequential:
    """Wide enough for activations of half a MiB, with dropout and running statistics."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(256, 1))


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    result: Tensor = model(batch).square().mean()
    return result


def batch(seed: int = 1) -> Tensor:
    return torch.randn(512, 256, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def fast_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if copies took no time: small ops would be run again instead."""
    monkeypatch.setattr(swap_use, "measure_copies", lambda space, largest: (TransferSample(2**20, 1e-4, 1e-4),))
    monkeypatch.setattr(swap_use, "measure_slowdown", lambda space: 0.0)


def use_file(monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], SwapFile]) -> list[SwapFile]:
    """Swap spaces get the file that `make` makes; returns those that were made."""
    made: list[SwapFile] = []

    def open_space(tier: str, device: torch.device, folder: Path | None) -> DiskSpace:
        assert folder is not None
        made.append(make(folder))
        return DiskSpace(made[-1])

    monkeypatch.setattr(swap_use, "open_space", open_space)
    return made


def swapped(folder: Path, **options: object) -> tuple[TrainStep, Trained, Trained]:
    """A step that swaps, what it trains, and the eager twin."""
    model = net()
    ours = Trained(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    theirs = ours.copy()
    settings: dict[str, object] = {"budget": BUDGET, "time_limit": 3, "swap": "disk", "swap_dir": folder} | options
    step = lowtide.train_step(model, ours.optimizer, batch(), loss, **settings)  # type: ignore[arg-type]
    return step, ours, theirs


def train(step: TrainStep, ours: Trained, theirs: Trained, numbers: range) -> None:
    """Side by side, compared after every step."""
    for number in numbers:
        torch.manual_seed(number)
        ours.loss = step(batch(number))
        ended = torch.get_rng_state()
        assert torch.equal(ended, eager_step(theirs, batch(number), loss, number))
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == [], f"step {number}"


def test_trains_as_eager_does_inside_the_budget(tmp_path: Path) -> None:
    step, ours, theirs = swapped(tmp_path)
    assert step.plan is not None
    assert step.graph.swaps
    assert Forecast(step.plan).swapped_bytes > 0
    assert step.profile is not None
    assert step.profile.transfer_tier.startswith("disk")
    assert [sample.bytes for sample in step.profile.transfer] == [2**20]
    train(step, ours, theirs, range(4))
    assert step.measured_peak is not None
    assert step.measured_peak <= step.plan.budget
    assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.01)
    assert "leave the device" in str(step)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_mutwo_swaps_too(tmp_path: Path) -> None:
    step, ours, theirs = swapped(tmp_path, policy="mutwo")
    assert step.graph.swaps
    train(step, ours, theirs, range(2))
    assert step.plan is not None
    assert step.measured_peak is not None
    assert step.measured_peak <= step.plan.budget


@pytest.mark.slow
def test_a_slow_disk_makes_the_step_wait_and_never_go_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_file(monkeypatch, lambda folder: SlowFile(folder, 0.02))
    step, ours, theirs = swapped(tmp_path)
    train(step, ours, theirs, range(3))
    assert step.plan is not None
    assert step.measured_peak is not None
    assert step.measured_peak <= step.plan.budget
    assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.01)


@pytest.mark.parametrize(
    "fault",
    often([failing(errno.EIO), failing(errno.ENOSPC), no_progress], 1),
    ids=["error", "disk full", "short write"],
)
def test_a_write_that_fails_leaves_everything_as_it_was(
    fault: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = use_file(monkeypatch, FaultyFile)
    step, ours, theirs = swapped(tmp_path)
    train(step, ours, theirs, range(2))
    (file,) = files
    assert isinstance(file, FaultyFile)
    file.writes.append(fault)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    with pytest.raises(SwapError, match="swapped values in") as raised:
        step(batch(7))
    assert "the step has not happened" in "".join(raised.value.__notes__)
    assert torch.equal(torch.get_rng_state(), before)
    assert list(differences(ours, theirs)) == []
    train(step, ours, theirs, range(2, 4))
    assert list(tmp_path.iterdir()) == []


def test_a_read_that_fails_says_what_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = use_file(monkeypatch, FaultyFile)
    step, ours, theirs = swapped(tmp_path)
    train(step, ours, theirs, range(2))
    (file,) = files
    assert isinstance(file, FaultyFile)
    file.reads.append(failing(errno.EIO))
    with pytest.raises(SwapError, match="reading") as raised:
        step(batch(7))
    note = "".join(raised.value.__notes__)
    assert "parameters had been updated by then" in note or "the step has not happened" in note
    step(batch(8))


def test_a_full_disk_is_told_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> SwapFile:
        file = FaultyFile(folder)
        file.room.append(disk_full())
        return file

    use_file(monkeypatch, full)
    with pytest.raises(SwapError, match="no room for"):
        swapped(tmp_path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SwapError, match="no swap file can be made in"):
        swapped(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_folder_that_vanishes_does_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "soon gone"
    folder.mkdir()
    step, ours, theirs = swapped(folder)
    folder.rmdir()
    train(step, ours, theirs, range(2))


@pytest.mark.slow
def test_a_saved_plan_swaps_where_it_may(tmp_path: Path) -> None:
    step, ours, theirs = swapped(tmp_path)
    step.save_plan(tmp_path / "plan.json")
    again, ours, theirs = swapped(tmp_path, budget=None, plan=tmp_path / "plan.json")
    assert again.graph.swaps
    train(again, ours, theirs, range(2))
    with pytest.raises(InputError, match="this plan swaps values: give swap="):
        swapped(tmp_path, budget=None, plan=tmp_path / "plan.json", swap="off", swap_dir=None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"swap": "tape"}, "swap must be one of off, disk, host, auto, not 'tape'"),
        ({"swap": "off"}, "a folder to swap into is for swapping to disk"),
        ({"swap": "host", "swap_dir": None}, "are in host memory already: swap them to disk"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(lowtide.errors.LowtideError, match=words):
        swapped(tmp_path, **options)


@pytest.mark.slow
def test_nothing_is_swapped_where_it_does_not_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_use, "measure_copies", lambda space, largest: (TransferSample(2**20, 1e5, 1e5),))
    step, ours, theirs = swapped(tmp_path, swap="auto")
    assert not step.graph.swaps
    assert step._forms.swap.space is None
    train(step, ours, theirs, range(2))


@pytest.mark.slow
def test_copies_that_take_too_much_from_compute_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_use, "measure_slowdown", lambda space: 1e3)
    step, _, _ = swapped(tmp_path)
    assert not step.graph.swaps
    assert step.profile is not None
    assert step.profile.transfer_drag == 1e3


@pytest.mark.slow
def test_with_accumulation(tmp_path: Path) -> None:
    step, ours, theirs = swapped(tmp_path, accumulate=2)
    assert step.graph.swaps
    torch.manual_seed(0)
    for number in range(4):
        step(batch(number))
    torch.manual_seed(0)
    for number in range(4):
        loss(theirs.model, batch(number)).backward()
        if number % 2:
            theirs.optimizer.step()
            theirs.optimizer.zero_grad()
    assert all(torch.equal(p, q) for p, q in zip(ours.model.parameters(), theirs.model.parameters(), strict=True))


KILLED = """
import os, sys, torch
sys.path.insert(0, {root!r})
from pathlib import Path
from lowtide.records.transfer import TransferSample
from lowtide.training import swap_use
from tests.device.swap.files import SlowFile
from lowtide.device.swap.disk import DiskSpace
from tests.training.test_swap import batch, swapped
swap_use.measure_copies = lambda space, largest: (TransferSample(2**20, 1e-4, 1e-4),)
swap_use.measure_slowdown = lambda space: 0.0
swap_use.open_space = lambda tier, device, folder: DiskSpace(SlowFile(folder, 0.2))
step, *_ = swapped(Path({folder!r}))
print("ready", flush=True)
while True:
    step(batch())
"""


@pytest.mark.slow
def test_killed_in_the_middle_of_a_step_it_leaves_no_file(tmp_path: Path) -> None:
    root = str(Path(__file__).parent.parent.parent)
    code = textwrap.dedent(KILLED).format(root=root, folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        handles = [str(handle.readlink()) for handle in Path(f"/proc/{child.pid}/fd").iterdir()]
        assert any(str(tmp_path) in target for target in handles)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_other_shapes_swap_as_well(tmp_path: Path) -> None:
    step, ours, theirs = swapped(tmp_path)
    for number, size in enumerate((512, 480, 512, 300, 480)):
        torch.manual_seed(number)
        ours.loss = step(batch()[:size])
        eager_step(theirs, batch()[:size], loss, number)
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == []
        assert step.plan is not None
        assert step.measured_peak is not None
        assert step.measured_peak <= step.plan.budget
    assert [prepared.taken_over for prepared in step._prepared].count(True) == 2
    step.close()
    assert list(tmp_path.iterdir()) == []
