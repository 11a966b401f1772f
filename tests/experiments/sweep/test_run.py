"""Which cases of a sweep are finished."""

from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.experiments.case import Case
from lowtide.experiments.sweep.run import both, case_files, finished, run_size
from tests.experiments.workers import Pretenders, settings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With batch size 4 measured."""
    monkeypatch.setattr("lowtide.experiments.pair.SETTLE", 0.0)
    run_size(tmp_path, settings(), lambda *_: None, start=Pretenders())
    return tmp_path


def test_a_measured_pair_is_finished(folder: Path) -> None:
    found = finished(folder, [settings(), settings(batch_size=8)])
    assert list(found) == [4]
    assert (found[4].planned.settings, found[4].plain.settings) == both(settings())


def test_two_cases_of_different_runs_are_no_pair(folder: Path) -> None:
    path = case_files(folder, 4)[0]
    replace(Case.load(path), run="another").save(path)
    assert finished(folder, [settings()]) == {}


def test_the_plan_does_not_matter_to_the_case_without_one() -> None:
    assert both(settings(budget="50%"))[1] == both(settings(budget="60%", time_limit=9.0))[1]


@pytest.mark.parametrize(
    ("changes", "words"), [({"budget": "50%"}, "budget 80%, now 50%"), ({"seed": 1}, "seed 0, now 1")]
)
def test_other_settings_are_refused(folder: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        finished(folder, [settings(**changes)])


def test_a_damaged_file_is_said(folder: Path) -> None:
    case_files(folder, 4)[1].write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        finished(folder, [settings()])
