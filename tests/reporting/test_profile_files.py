from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from lowtide.records.profile import Profile
from lowtide.reporting.memory_breakdown import peak_parts
from lowtide.reporting.memory_vs_rank import draw_memory_vs_rank
from lowtide.reporting.profile_files import PROFILE_FILES, write_profile_files

from .synthetic import chain, one_op
from .test_csv_files import NASTY


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(chain(), id="small", marks=pytest.mark.slow),
        pytest.param(chain(40), id="more than are named", marks=pytest.mark.slow),
        pytest.param(chain(prefix=NASTY), id="nasty names"),
        pytest.param(chain(activations=False), id="no activations", marks=pytest.mark.slow),
        pytest.param(one_op(), id="one op", marks=pytest.mark.slow),
        pytest.param(
            replace(chain(), runs=1, model="x" * 500, device_memory_B=4096),
            id="long name, limit below",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_all_files_are_there_and_the_pictures_show_something(profile: Profile, tmp_path: Path) -> None:
    assert set(write_profile_files(profile, tmp_path, budget=5000)) == set(PROFILE_FILES)
    assert {path.name for path in tmp_path.iterdir()} == set(PROFILE_FILES)
    assert Profile.load(tmp_path / "profile.json") == profile
    for name in PROFILE_FILES:
        if name.endswith(".png"):
            pixels = imread(tmp_path / name)
            assert min(pixels.shape[:2]) > 700
            assert (pixels[..., :3] < 0.9).any(axis=2).mean() > 0.003, name
            assert not np.array_equal(pixels[:100], np.ones_like(pixels[:100])), "the head says what was measured"


@pytest.mark.slow
def test_thousands_of_ops_stay_quick(tmp_path: Path) -> None:
    """No figure grows with the number of ops: what is drawn is bounded."""
    names = list(write_profile_files(chain(300), tmp_path))
    sizes = {name: imread(tmp_path / name).shape for name in names if name.endswith(".png")}
    many = chain(3000)
    (tmp_path / "many").mkdir()
    list(write_profile_files(many, tmp_path / "many"))
    assert {name: imread(tmp_path / "many" / name).shape for name in sizes} == sizes


def test_the_parts_of_the_peak_add_up() -> None:
    profile = chain()
    assert sum(peak_parts(profile).values()) == profile.peak_B
    assert peak_parts(profile)["workspace"] == 512


def test_a_limit_far_above_does_not_squash_the_curve(tmp_path: Path) -> None:
    draw_memory_vs_rank(replace(chain(), device_memory_B=2**40), tmp_path / "far.png")
    draw_memory_vs_rank(replace(chain(), device_memory_B=2**50), tmp_path / "farther.png")
    far, farther = imread(tmp_path / "far.png"), imread(tmp_path / "farther.png")
    assert np.abs(far[:600] - farther[:600]).max() < 0.1, "equal but for the palette"
    assert not np.array_equal(far[600:], farther[600:]), "the legend names the limit"


def test_a_failing_writer_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(OSError, match="No space"):
        draw_memory_vs_rank(chain(), tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
