"""The captured step is one eager training step, bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

import lowtide
from tests.equality import Trained, differences, eager_step
from tests.zoo import ZOO, Case, often

STEPS = 3


def assert_equal_training(case: Case, make: Callable[[Any], Optimizer], *, before: int = 0) -> None:
    """Train captured and eager copies side by side; the middle step has a batch that was not captured."""
    ours = Trained(case.model, make(case.model))
    for step in range(before):
        eager_step(ours, case.other, case.loss, 100 + step)
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    for step in range(STEPS):
        batch = case.other if step == 1 else case.batch
        torch.manual_seed(step)
        ours.loss = graph(batch, keep_gradients=True)
        generator = torch.get_rng_state()
        assert torch.equal(generator, eager_step(theirs, batch, case.loss, step)), "the generator ended elsewhere"
        assert list(differences(ours, theirs)) == [], f"step {step}"


@pytest.mark.parametrize("name", often())
def test_the_zoo_trains_as_eager_does(name: str) -> None:
    assert_equal_training(ZOO[name](), lambda model: torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1))


@pytest.mark.parametrize("name", often(["bert", "convnet", "homemade"], 1))
def test_models_in_eval_mode(name: str) -> None:
    case = ZOO[name]()
    case.model.eval()
    assert_equal_training(case, lambda model: torch.optim.SGD(model.parameters(), lr=0.1))


def _forms(*names: str) -> list[dict[str, bool]]:
    return [{}, *({name: True} for name in names)]


OPTIMIZERS: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (cls, {**options, **form})
    for cls, forms, variants in (
        (
            torch.optim.SGD,
            _forms("foreach", "fused"),
            [
                {"lr": 0.1},
                {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
                {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True},
            ],
        ),
        (
            torch.optim.Adam,
            _forms("foreach", "fused"),
            [{"lr": 0.01}, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}, {"lr": 0.01, "maximize": True}],
        ),
        (torch.optim.AdamW, _forms("foreach", "fused"), [{"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}]),
        (torch.optim.RMSprop, _forms("foreach"), [{"lr": 0.01}, {"lr": 0.01, "momentum": 0.5, "centered": True}]),
        (torch.optim.Adagrad, _forms("foreach", "fused"), [{"lr": 0.01, "lr_decay": 0.1, "weight_decay": 0.1}]),
    )
    for form in forms
    for options in variants
]


FORMS = [
    pytest.param(
        cls,
        options,
        id=f"{cls.__name__}-{'-'.join(options)}",
        marks=[] if "weight_decay" in options and not options.get("foreach") else [pytest.mark.slow],
    )
    for cls, options in OPTIMIZERS
]
"""Those with weight decay, fused and in a for-loop, in `make test`."""


@pytest.mark.parametrize("before", often([0, 2], 1), ids=["fresh", "with state"])
@pytest.mark.parametrize(("cls", "options"), FORMS)
def test_every_optimizer_form(cls: type[Optimizer], options: dict[str, Any], before: int) -> None:
    def make(model: nn.Module) -> Optimizer:
        first, *rest = model.parameters()
        return cls([{"params": [first], "lr": 0.003}, {"params": rest}], **options)  # type: ignore[arg-type]

    assert_equal_training(ZOO["convnet"](), make, before=before)


class Lookahead(torch.optim.Optimizer):
    """Somebody else's optimizer, whose update of one parameter depends on all gradients."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Normalised gradient descent."""
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in params]).norm()
        for p in params:
            p.sub_(p.grad / norm, alpha=0.1)


def test_an_optimizer_of_another_library_updates_all_at_once() -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, Lookahead(case.model.parameters()), case.batch, case.loss)
    assert sum(op.phase == "optimizer" for op in graph.ops) == 1
    assert_equal_training(case, lambda model: Lookahead(model.parameters()))


def test_a_learning_rate_that_changes_is_seen() -> None:
    case = ZOO["mlp"]()
    ours = Trained(case.model, torch.optim.Adam(case.model.parameters(), lr=0.1))
    theirs = ours.copy()
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(x.optimizer, 0.5) for x in (ours, theirs)]
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    for step in range(STEPS):
        ours.loss = graph(case.batch, keep_gradients=True)
        eager_step(theirs, case.batch, case.loss, step)
        assert list(differences(ours, theirs)) == []
        for scheduler in schedulers:
            scheduler.step()


def test_hooks_see_the_step_once() -> None:
    case = ZOO["mlp"]()
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    graph = lowtide.capture(case.model, optimizer, case.batch, case.loss)
    graph(case.batch)
    assert calls == [1]


class Transposed(nn.Module):
    """Parameters in odd strides, and two that get one and the same gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5).t())
        self.left = nn.Parameter(torch.randn(5))
        self.right = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        """A scalar. The gradient of the weight comes out in the strides of x."""
        return (x * self.weight).tanh().sum() + (self.left + self.right).sum()


def test_fused_optimizers_walk_memory_so_gradients_lie_as_their_parameters() -> None:
    case = Case(Transposed(), torch.randn(5, 6), torch.randn(5, 6))
    assert_equal_training(case, lambda model: torch.optim.Adam(model.parameters(), lr=0.01, fused=True))


class WithLossWeights(nn.Module):
    """A model whose loss has parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Any:
        """Features."""
        return self.body(x).relu()


def test_parameters_outside_of_the_model_are_trained() -> None:
    head = nn.Linear(8, 5)
    model = WithLossWeights()
    batch = (torch.randn(4, 6), torch.randint(0, 5, (4,)))
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    graph = lowtide.capture(model, optimizer, batch, lambda m, b: F.cross_entropy(head(m(b[0])), b[1]))
    before = [p.clone() for p in head.parameters()]
    graph(batch)
    assert all(not torch.equal(a, b) for a, b in zip(before, head.parameters(), strict=True))


def test_what_the_loss_returns_beside_the_loss_comes_back() -> None:
    model = nn.Linear(6, 5)

    def loss(m: nn.Module, batch: Any) -> Any:
        logits = m(batch[0])
        return F.cross_entropy(logits, batch[1]), {"right": (logits.argmax(1) == batch[1]).sum()}

    batch = (torch.randn(4, 6), torch.randint(0, 5, (4,)))
    expected = loss(model, batch)
    value, extra = lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), batch, loss)(batch)
    assert torch.equal(value, expected[0])
    assert torch.equal(extra["right"], expected[1]["right"])


def test_parameters_that_the_optimizer_does_not_hold_get_gradients_and_do_not_move() -> None:
    case = ZOO["mlp"]()
    ours = Trained(case.model, torch.optim.SGD(list(case.model.parameters())[:2], lr=0.1))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    ours.loss = graph(case.batch, keep_gradients=True)
    eager_step(theirs, case.batch, case.loss, 0)
    assert list(differences(ours, theirs)) == []


def test_gradients_are_dropped_unless_asked_for() -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, torch.optim.SGD(case.model.parameters(), lr=0.1), case.batch, case.loss)
    graph(case.batch)
    assert all(p.grad is None for p in case.model.parameters())


def test_capturing_changes_nothing() -> None:
    case = ZOO["convnet"]()
    ours = Trained(case.model, torch.optim.Adam(case.model.parameters()), torch.zeros(()))
    before = ours.copy()
    before.loss = torch.zeros(())
    generator = torch.get_rng_state()
    lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    assert list(differences(ours, before)) == []
    assert torch.equal(generator, torch.get_rng_state())


def test_the_judge_bites() -> None:
    """Equality tests are worth what they notice: a wrong bit in a parameter, a buffer, the state, a gradient."""
    case = ZOO["convnet"]()
    ours = Trained(case.model, torch.optim.Adam(case.model.parameters()))
    eager_step(ours, case.batch, case.loss, 0)
    theirs = ours.copy()
    theirs.loss = ours.loss
    eager_step(ours, case.batch, case.loss, 1)
    assert "loss" in list(differences(ours, theirs))
    eager_step(theirs, case.batch, case.loss, 1)
    assert list(differences(ours, theirs)) == []
    with torch.no_grad():
        parameter = next(ours.model.parameters())
        parameter.view(torch.int32).view(-1)[0] ^= 1
        ours.optimizer.state[parameter]["exp_avg"].view(-1)[0] += 1
        next(ours.model.buffers()).add_(1)
    assert len(list(differences(ours, theirs))) >= 3
