"""`lowtide report` from files to a page."""

from pathlib import Path

import pytest

from lowtide.records.step_plan import PlanFile
from tests.cli.running import run_main
from tests.reporting.plans import chain_plan, chain_run
from tests.reporting.synthetic import chain


def test_writes_page_and_trace_beside_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain().save(tmp_path / "profile.json")
    PlanFile((chain_plan(),)).save(tmp_path / "plan.json")
    assert run_main(monkeypatch, "report", tmp_path) == 0
    told = capsys.readouterr().out
    assert str(tmp_path / "report.html") in told
    assert str(tmp_path / "trace.json") in told
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json", "plan.json", "report.html", "trace.json"}
    assert run_main(monkeypatch, "report", tmp_path) == 2
    assert "--force" in capsys.readouterr().err
    assert run_main(monkeypatch, "report", tmp_path, "--force") == 0


def test_a_page_without_a_step_has_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain_run(None).save(tmp_path / "training.json")
    assert run_main(monkeypatch, "report", tmp_path, "--out", tmp_path / "page") == 0
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["report.html"]
    assert "trace.json" not in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["nothing", "no JSON", "another version"])
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    if damage != "nothing":
        (tmp_path / "profile.json").write_text("{" if damage == "no JSON" else '{"format":"lowtide-profile/1"}')
    before = sorted(tmp_path.iterdir())
    assert run_main(monkeypatch, "report", tmp_path) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
