"""The user's own forward beside the step, and the check of all gradients: a difference is found before a move."""

import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.errors import EagerMismatch, InputError
from lowtide.training.sentinel import check_schedule
from tests.equality import Trained, differences, eager_step
from tests.zoo import often


def make() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    )


def loss(model: nn.Module, batch: Any) -> Any:
    return F.cross_entropy(model(batch[0]), batch[1])


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(300, 8), torch.randint(0, 4, (300,))


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    state = [x for s in optimizer.state.values() for x in s.values() if isinstance(x, Tensor)]
    return [x.detach().clone() for x in (*model.state_dict().values(), *state, torch.get_rng_state())]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


def test_steps_that_are_checked() -> None:
    due = check_schedule(True)
    assert [n for n in range(1, 5000) if due(n)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096]
    assert [n for n in range(1, 12) if check_schedule(5)(n)] == [1, 5, 10]
    assert not any(map(check_schedule(False), range(1, 100)))
    with pytest.raises(InputError, match="sentinel must be"):
        check_schedule(-3)


@pytest.mark.parametrize("options", often([{"budget": "85%", "time_limit": 2}, {}, {"accumulate": 2}], 1))
def test_checking_changes_nothing(options: dict[str, Any]) -> None:
    model = make()
    ours = Trained(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    theirs = ours.copy()
    data = batch()
    step = lowtide.train_step(ours.model, ours.optimizer, data, loss, sentinel=1, **options)
    if options.get("accumulate"):
        other = lowtide.train_step(theirs.model, theirs.optimizer, data, loss, sentinel=False, **options)
    for k in range(4):
        torch.manual_seed(k)
        ours.loss = step(data)
        if options.get("accumulate"):
            torch.manual_seed(k)
            theirs.loss = other(data)
        else:
            eager_step(theirs, data, loss, k)
            theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == []
    assert step.checks.checks == 4
    assert step.checks.seconds > 0
    if "budget" in options:
        assert step.checks.peak is not None
        assert step.plan is not None
        assert step.checks.peak <= step.plan.budget


class Wrong(nn.Module):
    """Scales by a number in a place that no guard can see."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make()
        self.scaled = Hidden()

    def forward(self, x: Tensor) -> Any:
        """Logits."""
        return self.scaled(self.inner(x))


class Hidden(nn.Module):
    """Reads its number through the C level."""

    def forward(self, x: Tensor) -> Any:
        """Scaled."""
        return x * float(sys.get_int_max_str_digits() / DIGITS)


DIGITS = sys.get_int_max_str_digits()


def test_a_difference_raises_before_anything_moves_and_names_the_module() -> None:
    torch.manual_seed(0)
    model = Wrong()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = lowtide.train_step(model, optimizer, batch(), loss, sentinel=2)
    step(batch())
    before = everything(model, optimizer)
    sys.set_int_max_str_digits(2 * DIGITS)
    try:
        data = batch()
        before[-1] = torch.get_rng_state()
        with pytest.raises(EagerMismatch, match=r"differ first in the output of Hidden 'scaled'; nothing has moved"):
            step(data)
        assert torch.equal(torch.get_rng_state(), before[-1])
        assert equal(everything(model, optimizer), before)
        assert all(p.grad is None for p in model.parameters())
    finally:
        sys.set_int_max_str_digits(DIGITS)
    step(batch())


@pytest.mark.parametrize("options", [{}, {"budget": "1MiB", "time_limit": 2}])
def test_a_step_that_overwrites_its_batch(options: dict[str, Any]) -> None:
    """Eager overwrites it once; so does the step, and neither measuring nor the check beside it does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.3, inplace=True), nn.ReLU(inplace=True), nn.Linear(8, 4))
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = ours.copy()
    data = batch()
    other = copy.deepcopy(data)
    step = lowtide.train_step(ours.model, ours.optimizer, data, loss, sentinel=1, **options)
    assert torch.equal(data[0], other[0])
    for k in range(3):
        torch.manual_seed(k)
        ours.loss = step(data)
        eager_step(theirs, other, loss, k)
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == []
        assert torch.equal(data[0], other[0])


def test_losses_that_are_not_numbers_are_equal_too() -> None:
    model = nn.Linear(8, 4)
    step = lowtide.train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.1), batch(), lambda m, b: (m(b[0]) * float("nan")).sum()
    )
    assert torch.isnan(step(batch()))


def test_a_loss_that_is_made_from_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh())

    def penalty(m: nn.Module, b: Any) -> Any:
        x = b[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        return slope.pow(2).mean()

    step = lowtide.train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), batch(), penalty)
    step(batch())
    assert step.checks.checks == 1


class _LiesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * float(sys.get_int_max_str_digits() / DIGITS)


@pytest.mark.parametrize("options", [{}, {"budget": "85%"}])
def test_check_compares_all_gradients(options: dict[str, Any]) -> None:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    before = everything(model, optimizer)
    checked = lowtide.check(model, optimizer, batch(), loss, **options)
    assert str(checked) == "equal to eager: the loss, 8 gradients, 3 buffers"
    after = everything(model, optimizer)
    assert equal(after[:-1], before[:-1])
    assert all(p.grad is None for p in model.parameters())


def test_check_finds_what_losses_do_not_show() -> None:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def lying(m: Any, b: Any) -> Any:
        return F.cross_entropy(m[3:](_LiesInBackward.apply(m[:3](b[0]))), b[1])  # type: ignore[no-untyped-call]

    step = lowtide.train_step(model, optimizer, batch(), lying)
    step.check(batch())
    sys.set_int_max_str_digits(2 * DIGITS)
    try:
        with pytest.raises(
            EagerMismatch, match=r"the loss is equal to eager's, but 4 of 8 gradients \(0\.bias, 0\.weight"
        ):
            step.check(batch())
    finally:
        sys.set_int_max_str_digits(DIGITS)


def test_check_leaves_gradients_alone() -> None:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss(model, batch()).backward()
    held = copy.deepcopy([p.grad for p in model.parameters()])
    lowtide.check(model, optimizer, batch(), loss)
    assert all(torch.equal(a, b.grad) for a, b in zip(held, model.parameters(), strict=True))  # type: ignore[arg-type]
