"""What people do around a step: outputs, gradients, an incomplete accumulation, logs, closing."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.errors import InputError
from tests.equality import differences
from tests.rewriting.test_rewrite import tiled
from tests.training.test_train_step import assert_equal, deep_convnet, eager_micro_step, setting
from tests.zoo import ZOO, Case, often


def with_logits(model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, Any]:
    logits = model(batch[0])
    return {"logits": logits, "loss": F.cross_entropy(logits, batch[1]), "parts": [logits.sum(), {"n": 3}]}


def test_a_dict_comes_back_as_it_is() -> None:
    case = tiled(ZOO["mlp"](), 8)
    step = lowtide.train_step(case.model, torch.optim.SGD(case.model.parameters()), case.batch, with_logits, "98%")
    expected = with_logits(case.model, case.batch)
    found = step(case.batch)
    assert list(found) == ["logits", "loss", "parts"]
    assert found["parts"][1] == {"n": 3}
    for mine, theirs in zip(*(torch.utils._pytree.tree_leaves(x) for x in (found, expected)), strict=True):
        assert mine is theirs or (torch.equal(mine, theirs) and not mine.requires_grad)
    assert step.check(case.batch).gradients == 6
    graph = lowtide.capture(case.model, torch.optim.SGD(case.model.parameters()), case.batch, with_logits)
    assert set(graph(case.batch)) == {"logits", "loss", "parts"}


@pytest.mark.parametrize("options", often([{"accumulate": 2}, {"clip_grad_norm": 0.1}, {}], 1))
def test_gradients_that_are_kept(options: dict[str, Any]) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "75%", time_limit=1, keep_gradients=True, **options
    )
    every = options.get("accumulate", 1)
    for number in range(2 * every):
        torch.manual_seed(number)
        ours.loss = step(case.batch)
        torch.manual_seed(number)
        if number % every == 0:
            theirs.optimizer.zero_grad()
        assert case.loss is not None
        theirs.loss = case.loss(theirs.model, case.batch)
        theirs.loss.backward()
        if number % every == every - 1:
            if "clip_grad_norm" in options:
                torch.nn.utils.clip_grad_norm_(theirs.model.parameters(), options["clip_grad_norm"])
            theirs.optimizer.step()
        assert all(p.grad is not None for p in ours.model.parameters())
        assert list(differences(ours, theirs)) == []
        assert step.measured_peak is not None
        assert step.plan is not None
        assert step.measured_peak <= step.plan.budget
    assert step.measured_peak == pytest.approx(step.predicted_peak, rel=0.05)


@pytest.mark.parametrize("clip", [None, 0.1])
def test_an_incomplete_accumulation_is_flushed(clip: float | None) -> None:
    case = tiled(ZOO["mlp"](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, accumulate=4, clip_grad_norm=clip, sentinel=False
    )
    assert not step.flush()
    for number, batch in enumerate((case.batch, case.other)):
        torch.manual_seed(number)
        ours.loss = step(batch)
        eager_micro_step(theirs, case, batch, number, place=number, accumulate=2, clip=clip)
    assert "micro-step 2 of 4" in repr(step)
    assert step.flush()
    assert list(differences(ours, theirs)) == []
    assert (step.grad_norm is None) == (clip is None)
    assert step.measured_peak is not None
    assert_equal(case, ours, theirs, step, calls=4, accumulate=4, clip=clip)


def test_the_norm_is_measured_without_clipping() -> None:
    case = tiled(ZOO["mlp"](), 8)
    ours, theirs = setting(case)
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, clip_grad_norm=math.inf)
    torch.manual_seed(0)
    ours.loss = step(case.batch)
    torch.manual_seed(0)
    assert case.loss is not None
    case.loss(theirs.model, case.batch).backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in theirs.model.parameters() if p.grad is not None])
    assert step.grad_norm is not None
    assert torch.equal(step.grad_norm, expected)


def test_stages_are_logged_and_the_step_says_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    case = deep_convnet()
    ours, _ = setting(case)
    with caplog.at_level(logging.INFO, "lowtide"):
        step = lowtide.train_step(
            ours.model, ours.optimizer, case.batch, case.loss, "75%", time_limit=1, measure="before"
        )
    said = [record.message for record in caplog.records]
    for stage in ("capture: ", "provisional plan: ", "measure: ", "plan: ", "rewrite: "):
        assert sum(line.startswith(stage) for line in said) == 1, said
    assert all(" s" in line for line in said)
    assert any("ms a step" in line and "without a plan" in line for line in said)
    assert repr(step).startswith("TrainStep(Sequential, AdamW, for-loop: ")
    assert "% time; 1 form of batch)" in repr(step)
    assert len(repr(step)) < 160


def test_a_closed_step(tmp_path: Path) -> None:
    case: Case = ZOO["mlp"]()
    with lowtide.train_step(case.model, torch.optim.SGD(case.model.parameters()), case.batch, case.loss) as step:
        step(case.batch)
    for call in (lambda: step(case.batch), step.flush):
        with pytest.raises(InputError, match="this step is closed: make a new one"):
            call()
    assert "closed" in repr(step)
    step.close()
