"""The moving pictures: as many frames as asked for, each another one, small."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from lowtide.experiments.saved_memory.record import MemorySamples, SampledStep
from lowtide.experiments.saved_memory.report import draw_saved_demo
from lowtide.records.profile import Profile
from lowtide.reporting.profiler_demo import draw_profiler_demo

from .synthetic import KIB, chain, one_op
from .test_csv_files import NASTY

BEFORE = SampledStep((0.0, 1.0, 2.0, 3.5), (KIB, 3 * KIB, 2 * KIB, KIB), 4 * KIB, 4.0)
AFTER = SampledStep((0.0, 2.0, 5.0), (KIB, 2 * KIB, KIB), 2 * KIB, 5.0)
SAMPLES = MemorySamples(
    "chain", ("x: float32[4]",), "Adam", "cpu", "2.13.0", "allocator shim", 1.0, 2 * KIB, BEFORE, AFTER
)


def _frames(path: Path) -> list[Image.Image]:
    with Image.open(path) as picture:
        found = []
        for frame in range(getattr(picture, "n_frames", 1)):
            picture.seek(frame)
            found.append(picture.convert("RGB"))
        return found


def _difference(one: Image.Image, other: Image.Image) -> tuple[int, int, int, int] | None:
    return ImageChops.difference(one, other).getbbox()


@pytest.mark.parametrize("profile", [chain(), chain(prefix=NASTY)])
def test_the_profiler_walks_through_the_step(profile: Profile, tmp_path: Path) -> None:
    draw_profiler_demo(profile, tmp_path / "demo.gif", frames=4)
    frames = _frames(tmp_path / "demo.gif")
    assert len(frames) == 4
    assert all(_difference(one, other) for one, other in pairwise(frames))
    assert [path.name for path in tmp_path.iterdir()] == ["demo.gif"]


def test_a_step_of_one_op_is_drawn_too(tmp_path: Path) -> None:
    draw_profiler_demo(replace(one_op(), model="x" * 300), tmp_path / "demo.gif", frames=2)
    assert len(_frames(tmp_path / "demo.gif")) == 2


def test_both_steps_build_up_side_by_side(tmp_path: Path) -> None:
    draw_saved_demo(SAMPLES, tmp_path / "demo.gif", frames=5)
    frames = _frames(tmp_path / "demo.gif")
    assert len(frames) == 5
    width, height = frames[0].size
    for side in ((0, 0, width // 2, height), (width // 2, 0, width, height)):
        parts = [frame.crop(side) for frame in frames]
        assert all(_difference(one, other) for one, other in pairwise(parts))
    assert (tmp_path / "demo.gif").stat().st_size < 200_000


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    SAMPLES.save(tmp_path / "samples.json")
    assert MemorySamples.load(tmp_path / "samples.json") == SAMPLES
