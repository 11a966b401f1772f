from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.experiments.case import Outcome
from lowtide.experiments.sweep.record import Pair, Sweep
from lowtide.pages.report.inputs import ReportInputs, SweepCase, read_inputs
from lowtide.records.step_plan import PlanFile
from tests.experiments.records import MIB, case, failed
from tests.experiments.workers import MACHINE
from tests.reporting.plans import chain_plan, chain_run
from tests.reporting.synthetic import chain

FRONTIER = "peak_bytes,time,overhead,bound,gap,seconds,steps\n2000,1,0.0,0.0,0,0.1,5\n1000,1.2,0.2,0.1,0.1,0.3,7\n"


def test_everything_that_lies_in_several_folders_is_found(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    chain().save(one / "profile.json")
    (one / "frontier.csv").write_text(FRONTIER)
    PlanFile((replace(chain_plan(), note="not this"), chain_plan())).save(two / "plan.json")
    chain_run(chain_plan()).save(two / "training.json")
    found = read_inputs([one, two])
    assert found.profile == chain()
    assert found.plan == chain_plan(), "the step that moves the parameters is the last"
    assert found.run == chain_run(chain_plan())
    assert [point.peak_B for point in found.frontier] == [1000, 2000]
    assert replace(found, profile=None, plan=None, run=None, frontier=()) == ReportInputs()


def test_a_sweep_is_shown_with_what_became_of_each_case(tmp_path: Path) -> None:
    trained = Pair(4, planned=case(planned=True), plain=case(planned=False, ms=(8.0, 8.0, 8.0), peak=MIB))
    outgrown = Pair(8, planned=case(planned=True, batch=8), plain=failed(Outcome.OUT_OF_MEMORY, planned=False, batch=8))
    Sweep("chain", "60%", MACHINE, (trained, outgrown)).save(tmp_path / "sweep.json")
    assert read_inputs([tmp_path]).sweep == (
        SweepCase("chain", 4, MIB, 600 * MIB, 8.0, 11.0, 0.375, "losses equal"),
        SweepCase("chain", 8, None, 600 * MIB, None, 11.0, None, "without a plan: out of memory"),
    )
    replace(chain(), model="other").save(tmp_path / "profile.json")
    with pytest.raises(InputError, match=r"profile\.json is of other, but sweep\.json of chain"):
        read_inputs([tmp_path])


def test_nothing_to_show_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing to report in .*none of profile\.json, plan\.json"):
        read_inputs([tmp_path])
    with pytest.raises(InputError, match="is no folder"):
        read_inputs([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no rows"),
        ("peak_bytes,overhead\n1,2\n", "is no table of `lowtide frontier`"),
        (FRONTIER + "many,1,2,3,4,5,6\n", "is no table of `lowtide frontier`"),
    ],
)
def test_a_damaged_frontier_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "frontier.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_inputs([tmp_path])


def test_a_plan_file_without_plans_is_refused(tmp_path: Path) -> None:
    PlanFile(()).save(tmp_path / "plan.json")
    with pytest.raises(InputError, match="holds no plan"):
        read_inputs([tmp_path])


def test_things_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        chain().save(folder / "profile.json")
    with pytest.raises(InputError, match="are both there"):
        read_inputs([one, two])
    chain_run(None, model="other").save(one / "training.json")
    with pytest.raises(InputError, match=r"profile\.json is of chain, but training\.json of other"):
        read_inputs([one])
    plan = chain_plan()
    other = replace(plan, step=replace(plan.step, batch=("x: float32[1, 16] on cpu",)))
    PlanFile((other,)).save(two / "plan.json")
    with pytest.raises(InputError, match=r"profile\.json is of the batch x: float32\[16, 16\]"):
        read_inputs([two])
    PlanFile((plan,)).save(two / "plan.json")
    chain_run(replace(plan, budget=plan.budget + 1)).save(two / "training.json")
    with pytest.raises(InputError, match="their budgets differ"):
        read_inputs([two])
