"""A plan file that is damaged, or for another step, is refused as such and not blamed on lowtide."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide.records.step_plan import PlanFile
from lowtide.training.planned import apply_plan
from tests.records.damage import listed
from tests.training.test_train_step import adam, deep_convnet

Plan = dict[str, Any]


def first_repeated(plan: Plan) -> int:
    """The place of the first run that is not the first of its op."""
    return next(k for k, o in enumerate(plan["order"]) if o in plan["order"][:k])


def spoil_ranks(plan: Plan) -> None:
    for action in plan["actions"]:
        action["ranks"] = [rank + 10**6 for rank in action["ranks"]]


def spoil_acts(plan: Plan) -> None:
    for action in plan["actions"]:
        action["act"] = "unpack"


DAMAGE: dict[str, Callable[[Plan], object]] = {
    "an op of the order is missing": lambda plan: plan["order"].pop(first_repeated(plan)),
    "the order is empty": lambda plan: plan["order"].clear(),
    "the order names no op": lambda plan: plan["order"].append(10**6),
    "the exact order names no op": lambda plan: plan["exact_order"].append(-1),
    "no actions": lambda plan: plan["actions"].clear(),
    "ranks that are not there": spoil_ranks,
    "acts without a storage": spoil_acts,
    "an unknown act": lambda plan: plan["actions"][0].update(act="dance"),
    "no rank": lambda plan: plan["actions"][0].update(ranks=[]),
    "another op": lambda plan: plan["actions"][0].update(ranks=[3]),
    "no such activation": lambda plan: plan["activations"].append(10**6),
    "another model": lambda plan: plan["step"].update(model="x" * 100_000),
}


@pytest.mark.slow
def test_damage_is_the_files(tmp_path: Path) -> None:
    case = deep_convnet()
    optimizer = adam(case.model)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    step = lowtide.train_step(case.model, optimizer, case.batch, case.loss, "80%", time_limit=1)
    step.save_plan(good)
    again = lowtide.train_step(case.model, optimizer, case.batch, case.loss, "80%", plan=good)
    captured = again._newest.steps[next(iter(again._newest.steps))].captured
    for what, spoil in DAMAGE.items():
        content = listed(json.loads(good.read_text()))
        spoil(content["plans"][0])
        bad.write_text(json.dumps(content))
        with pytest.raises(lowtide.InputError, match=r"bad\.json (is damaged|does not fit)") as caught:
            apply_plan(captured, PlanFile.load(bad).plans[0], where=str(bad))
        message = str(caught.value)
        assert "please report" not in message, what
        assert "\n" not in message, what
        assert len(message) < 450 + len(str(bad)), what


def test_a_plan_for_another_step_is_a_mismatch(tmp_path: Path) -> None:
    case = deep_convnet()
    path = tmp_path / "plan.json"
    lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "80%", time_limit=1).save_plan(path)
    case.model.eval()
    with pytest.raises(lowtide.PlanMismatch, match="does not fit this training step"):
        lowtide.train_step(case.model, adam(case.model), case.batch, case.loss, "80%", plan=path)
