"""A Trainer of planned steps trains bit for bit as the Trainer does."""

from typing import Any

import pytest
import torch

import lowtide
from lowtide.integrations.planned_trainer import OPTIONS
from tests.integrations.test_examples import example

pytestmark = pytest.mark.filterwarnings("ignore")
LOGGED = ("loss", "grad_norm", "learning_rate", "epoch", "step")


def assert_equal(ours: Any, theirs: Any) -> None:
    """Parameters, buffers, optimizer state, and what was logged."""
    for (name, a), (_, b) in zip(ours.model.state_dict().items(), theirs.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    one, two = (trainer.optimizer.state_dict() for trainer in (ours, theirs))
    assert one["param_groups"] == two["param_groups"]
    assert one["state"].keys() == two["state"].keys()
    for number, state in one["state"].items():
        assert state.keys() == two["state"][number].keys()
        assert all(torch.equal(value, two["state"][number][name]) for name, value in state.items())
    logs = [[[e.get(k) for k in LOGGED] for e in t.state.log_history if "loss" in e] for t in (ours, theirs)]
    assert len(logs[0]) == 3
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_accumulation_clipping_and_schedulers_are_the_trainers() -> None:
    """Five batches in twos: the last update comes after one of them. Without a budget nothing is planned."""
    module = example("trainer_planned")
    theirs = module.train(None)
    trainer_class = lowtide.LowtideTrainer
    module.lowtide.LowtideTrainer = lambda *a, budget, **k: trainer_class(*a, budget=None, **k)
    try:
        ours = module.train("all")
    finally:
        module.lowtide.LowtideTrainer = trainer_class
    assert_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"bf16": True, "optim": "sgd", "weight_decay": 0.1},
    ],
    ids=["adamw", "bfloat16"],
)
def test_planned_steps_are_equal(arguments: dict[str, Any]) -> None:
    train = example("trainer_planned").train
    ours, theirs = train("80%", **arguments), train(None, **arguments)
    step = ours.planned_step
    assert step.plan.rewritten
    peaks = [e["lowtide_measured_peak_B"] for e in ours.state.log_history if "loss" in e]
    assert max(peaks) <= step.plan.budget
    assert_equal(ours, theirs)


def test_unknown_options_are_named() -> None:
    with pytest.raises(lowtide.InputError, match=r"there is no option 'accumulate' in step_options; there are policy,"):
        lowtide.LowtideTrainer(budget="1GiB", step_options={"accumulate": 2})
    assert "swap" in OPTIONS
