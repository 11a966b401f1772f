"""A broken profile or plan file is refused in one sentence when it is read, or whoever reads it next can use it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.pages.analysis.profiles import profile_facts
from lowtide.pages.report.data import page_data
from lowtide.pages.report.inputs import ReportInputs
from lowtide.records.profile import Profile
from lowtide.records.step_plan import PlanFile
from lowtide.reporting.csv_files import write_activation_stats, write_node_stats, write_optimizer_stats
from lowtide.reporting.explain import explain
from tests.records.damage import broken
from tests.reporting.plans import chain_plan
from tests.reporting.synthetic import chain


def read_profile(path: Path) -> None:
    """Load and use it."""
    profile = Profile.load(path)
    page_data(ReportInputs(profile=profile))
    profile_facts(profile)
    profile.by_layer()
    for write in (write_node_stats, write_activation_stats, write_optimizer_stats):
        write(profile, path.with_suffix(".csv"))


def read_plans(path: Path) -> None:
    """Load and use them."""
    for plan in PlanFile.load(path).plans:
        explain(plan, measured_peak=1)
        page_data(ReportInputs(plan=plan))


@pytest.mark.parametrize(
    ("save", "read"),
    [
        (lambda path: chain().save(path), read_profile),
        (lambda path: PlanFile((chain_plan(),)).save(path), read_plans),
        (lambda path: PlanFile((chain_plan(lane="copy"),)).save(path), read_plans),
    ],
    ids=["profile", "plan", "plan that swaps"],
)
def test_nothing_but_one_sentence_comes_of_a_broken_file(
    save: Callable[[Path], None], read: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "file.json"
    save(path)
    read(path)
    refused = 0
    for place, content in broken(json.loads(path.read_text())):
        path.write_text(json.dumps(content))
        try:
            read(path)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error), place  # noqa: PT017 - both ways out are right
            assert len(str(error)) < 400, place  # noqa: PT017
    assert refused > 100


def test_numbers_that_name_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    plan = chain_plan()
    PlanFile((replace(plan, activations=(99,)),)).save(path)
    with pytest.raises(InputError, match=r"file\.json is damaged: the plan names the storage 99, which is not there"):
        PlanFile.load(path)
    profile = chain()
    replace(profile, ops=(replace(profile.ops[0], writes=(99,)), *profile.ops[1:])).save(path)
    with pytest.raises(InputError, match=r"file\.json is damaged: op 0 names the storage 99, which is not there"):
        Profile.load(path)
