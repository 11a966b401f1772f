"""Parameters that the optimizer does not hold: their gradients add up in `.grad`, as after every backward."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import SGD, AdamW, Optimizer

import lowtide
from lowtide.errors import CaptureError, InputError

Net = nn.Sequential


def _net() -> Net:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 16)]
    return nn.Sequential(*layers)


def _batch(k: int) -> Tensor:
    return torch.randn(64, 16, generator=torch.Generator().manual_seed(k))


def _all_equal(ours: nn.Module, theirs: nn.Module) -> bool:
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    return all(torch.equal(p, q) and _same_gradient(p, q) for p, q in pairs)


def _same_gradient(p: Tensor, q: Tensor) -> bool:
    if p.grad is None or q.grad is None:
        return p.grad is q.grad
    return torch.equal(p.grad, q.grad)


def _loss(model: nn.Module, x: Tensor) -> Tensor:
    return mse_loss(model(x), x)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate": 3},
        {"clip_grad_norm": 0.1},
        {"accumulate": 2, "clip_grad_norm": 0.1},
        {"budget": "95%"},
        {"budget": "95%", "measure": "training"},
    ],
    ids=str,
)
def test_a_second_optimizer_finds_its_gradients(options: dict[str, Any]) -> None:
    ours = _net()
    theirs = copy.deepcopy(ours)
    first, second = AdamW(ours[0].parameters(), lr=0.01), SGD([*ours[2].parameters(), *ours[5].parameters()], lr=0.1)
    eager, other = (
        AdamW(theirs[0].parameters(), lr=0.01),
        SGD([*theirs[2].parameters(), *theirs[5].parameters()], lr=0.1),
    )
    step = lowtide.train_step(ours, first, _batch(0), _loss, time_limit=1, **options)
    count = options.get("accumulate", 1)
    for call in range(3 * count):
        torch.manual_seed(call)
        step(_batch(call))
        torch.manual_seed(call)
        _loss(theirs, _batch(call)).backward()
        if call % count == count - 1:
            if "clip_grad_norm" in options:
                nn.utils.clip_grad_norm_(theirs.parameters(), options["clip_grad_norm"])
            eager.step()
            eager.zero_grad()
        assert _all_equal(ours, theirs)
        if call == 2 * count - 1:  # not after every step: what is not cleared adds up
            for optimizer in (second, other):
                optimizer.step()
                optimizer.zero_grad()
    if step.plan is not None:
        assert step.measured_peak is not None
        assert step.measured_peak <= step.plan.budget


def test_another_model_that_the_loss_goes_through_gets_its_gradients() -> None:
    ours, judge = _net(), nn.Linear(16, 1)
    theirs, other_judge = copy.deepcopy((ours, judge))

    def loss_by(judge: nn.Module) -> Any:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            with torch.no_grad():
                judge(x)  # asks for no gradient
            judged: Tensor = judge(model(x))
            return judged.square().mean()

        return loss

    optimizers: list[Optimizer] = [AdamW(model.parameters()) for model in (ours, judge, theirs, other_judge)]
    mine, judges, eager, other_judges = optimizers
    step = lowtide.train_step(ours, mine, _batch(0), loss_by(judge))
    for k in range(4):
        torch.manual_seed(k)
        step(_batch(k))
        judges.step()
        judges.zero_grad()
        torch.manual_seed(k)
        loss_by(other_judge)(theirs, _batch(k)).backward()
        for optimizer in (eager, other_judges):
            optimizer.step()
            optimizer.zero_grad()
        assert _all_equal(ours, theirs)
        assert _all_equal(judge, other_judge)


def test_no_gradient_of_a_teacher_that_asks_for_none() -> None:
    ours, teacher = _net(), _net()

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = teacher(x)
        return mse_loss(model(x), wanted)

    step = lowtide.train_step(ours, AdamW(ours.parameters()), _batch(0), loss)
    step(_batch(0))
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_what_gradients_would_be_lost_through_is_refused() -> None:
    model = _net()
    optimizer = AdamW(model.parameters())
    last = model[5].bias
    assert isinstance(last, Tensor)
    early = last[:8]
    with pytest.raises(CaptureError, match=r"reads '5\.bias' through a reference taken before"):
        lowtide.train_step(model, optimizer, _batch(0), lambda m, x: (m(x)[:, :8] * early).sum())
    with pytest.raises(InputError, match=r"^batch requires grad"):
        lowtide.train_step(model, optimizer, _batch(0).requires_grad_(), _loss)
    step = lowtide.train_step(model, optimizer, _batch(0), _loss)
    with pytest.raises(InputError, match=r"^batch requires grad"):
        step(_batch(1) * last)


def test_a_loss_of_torch_func() -> None:
    ours = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    theirs = copy.deepcopy(ours)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        gradient: Tensor = torch.func.grad(lambda z: model(z).square().sum())(x)
        return gradient.square().mean()

    mine, eager = AdamW(ours.parameters()), AdamW(theirs.parameters())
    step = lowtide.train_step(ours, mine, _batch(0), loss)
    for k in range(3):
        step(_batch(k))
        loss(theirs, _batch(k)).backward()
        eager.step()
        eager.zero_grad()
    assert step.checks.checks == 2
    assert _all_equal(ours, theirs)
