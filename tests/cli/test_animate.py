"""`lowtide animate`, on a small model."""

from pathlib import Path

import pytest
from PIL import Image

from lowtide.device.shim import compiler
from lowtide.experiments.saved_memory.record import MemorySamples
from tests.cli.running import run_main
from tests.cli.test_train import MODEL
from tests.reporting.synthetic import chain


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="no C++ compiler: there is no allocator shim to sample")
def test_what_is_drawn_was_sampled_while_the_steps_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    words = (f"{tmp_path / 'net.py'}:net", "--batch-size", "1024", "--budget", "60%", "--time-limit", "2")
    assert (
        run_main(monkeypatch, "animate", "saved", *words, "--frames", "3", "--out", tmp_path / "out" / "saved.gif") == 0
    )
    assert "saved.json" in capsys.readouterr().out
    samples = MemorySamples.load(tmp_path / "out" / "saved.json")
    for step in (samples.before, samples.after):
        assert len(step.ms) == len(step.bytes) > 2
        assert max(step.bytes) <= step.peak_B
        assert step.bytes[0] < step.peak_B
    assert samples.after.peak_B <= samples.budget_B < samples.before.peak_B
    with Image.open(tmp_path / "out" / "saved.gif") as picture:
        assert getattr(picture, "n_frames", 1) == 3


def test_the_profilers_walk_comes_from_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain().save(tmp_path / "profile.json")
    words = ("animate", "profiler", tmp_path, "--out", tmp_path / "walk.gif", "--frames", "2")
    assert run_main(monkeypatch, *words) == 0
    assert (tmp_path / "walk.gif").is_file()
    capsys.readouterr()
    assert run_main(monkeypatch, *words) == 2
    assert "--force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("profiler", "{}", "--out", "{}/x.png"), "ends in .gif"),
        (("profiler", "{}", "--out", "{}/x.gif", "--frames", "1"), "--frames must be from 2 to 1000"),
        (("profiler", "{}", "--out", "{}/x.gif"), "there is no profile.json in"),
        (("saved", "mlp", "--batch-size", "4", "--budget", "much", "--out", "{}/x.gif"), "is no size"),
        (("saved", "nothing", "--batch-size", "4", "--budget", "50%", "--out", "{}/x.gif"), "unknown model"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_main(monkeypatch, "animate", *(word.format(tmp_path) for word in words)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("lowtide: ")
    assert list(tmp_path.iterdir()) == []
