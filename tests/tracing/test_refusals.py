"""What cannot be captured gives one clear error that names the user's line and what to do."""

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import lowtide
from lowtide.errors import CaptureError

HERE = r"tests/tracing/test_refusals\.py:\d+"


class Odd(nn.Module):
    """A model whose forward is given."""

    def __init__(self, body: Callable[["Odd", Tensor], Any], *, sparse: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.table = nn.Embedding(5, 4, sparse=sparse)
        self.register_buffer("factor", torch.ones(1))
        self._body = body

    def forward(self, x: Tensor) -> Any:
        """Whatever was given."""
        return self._body(self, x)


def capture(model: nn.Module, x: Tensor | None = None) -> Any:
    x = torch.ones(3, 4) if x is None else x
    return lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), x)


def branch(m: Odd, x: Tensor) -> Any:
    h = m.layer(x).sum()
    return h * 2 if h > 0 else h


def without_gradient(m: Odd, x: Tensor) -> Any:
    with torch.no_grad():
        return m.layer(x).sum()


def store(m: Odd, x: Tensor) -> Any:
    kept = m.layer(x)
    m.kept = kept
    return kept.sum()


REFUSED: dict[str, tuple[Callable[[Odd, Tensor], Any], str]] = {
    "item": (lambda m, x: m.layer(x).sum() * x.mean().item(), "read as a Python number"),
    "branch": (branch, "read as a Python number"),
    "layerdrop": (lambda m, x: m.layer(x).sum() if torch.rand([]) < 0.5 else x.sum(), "read as a Python number"),
    "tolist": (lambda m, x: m.layer(x).sum() * x[0].tolist()[0], "read as a Python number"),
    "buffer": (lambda m, x: m.layer(x).sum() * m.factor.item(), "read as a Python number"),  # type: ignore[operator]
    "numpy": (lambda m, x: m.layer(x).sum() * float(x.numpy().sum()), "taken out of torch"),
    "boolean mask": (lambda m, x: m.layer(x)[x > 0].sum(), "shape depends on values"),
    "random": (lambda m, x: m.layer(x).sum() * random.random(), "draws random numbers"),
    "numpy random": (lambda m, x: m.layer(x).sum() * np.random.rand(), "draws random numbers"),
    "no scalar": (lambda m, x: m.layer(x), r"shape \[3, 4\].*\.mean\(\)"),
    "no gradient": (without_gradient, "does not depend on any trainable parameter"),
    "no loss": (lambda m, x: {"logits": m.layer(x)}, "without a loss"),
    "checkpoint": (
        lambda m, x: checkpoint(m.layer, x, use_reentrant=False).sum(),
        "gradient_checkpointing_disable",
    ),
    "stored tensor": (store, "attribute 'kept'"),
    "wrong shape": (lambda m, x: m.layer(x[:, :3]).sum(), "Run the same step eagerly"),
    "own generator": (
        lambda m, x: (m.layer(x) + torch.rand(3, 4, generator=torch.Generator())).sum(),
        "generator of its own",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_line(name: str) -> None:
    body, message = REFUSED[name]
    model = Odd(body)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator, python = torch.get_rng_state(), random.getstate()
    with pytest.raises(CaptureError, match=message) as caught:
        capture(model)
    assert re.search(HERE, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert type(model.layer.weight) is nn.Parameter, "the model holds its own parameters again"
    assert (random.getstate(), torch.get_rng_state().tolist()) == (python, generator.tolist())


def test_sparse_gradients() -> None:
    model = Odd(lambda m, x: m.table(torch.zeros(2, dtype=torch.long)).sum() + m.layer(x).sum(), sparse=True)
    with pytest.raises(CaptureError, match=HERE + ".*sparse=False"):
        capture(model)


def test_a_constant_is_no_data() -> None:
    capture(Odd(lambda m, x: m.layer(x).sum() * torch.tensor(2.0).item()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: torch.optim.LBFGS(p), "LBFGS calls the model several times"),
        (lambda p: torch.optim.SparseAdam(p), "sparse gradients"),
    ],
)
def test_optimizers_that_do_not_step_once(make: Callable[[Any], torch.optim.Optimizer], message: str) -> None:
    model = nn.Linear(4, 1)
    with pytest.raises(CaptureError, match=HERE + ".*" + message):
        lowtide.capture(model, make(list(model.parameters())), torch.randn(2, 4))


def test_nothing_to_train() -> None:
    model = nn.Linear(4, 1).requires_grad_(False)
    with pytest.raises(CaptureError, match=HERE + ".*no trainable parameter"):
        capture(model)


def test_a_batch_on_another_device() -> None:
    with pytest.raises(CaptureError, match=HERE + r".*batch is on meta, the model on cpu.*\.to\('cpu'\)"):
        capture(nn.Linear(4, 1), torch.randn(2, 4, device="meta"))


def test_hooks_on_gradients() -> None:
    for register in ("register_hook", "register_post_accumulate_grad_hook"):
        model = nn.Linear(4, 1)
        getattr(model.weight, register)(lambda *_: None)
        with pytest.raises(CaptureError, match=HERE + ".*weight has a hook"):
            capture(model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own imports
def test_compiled_and_parallel_models() -> None:
    with pytest.raises(CaptureError, match=HERE + ".*the model is compiled.*_orig_mod"):
        capture(torch.compile(nn.Linear(4, 1)))  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match=HERE + ".*module '1' is a DataParallel"):
        capture(nn.Sequential(nn.Linear(4, 4), nn.DataParallel(nn.Linear(4, 1))))


def test_a_parameter_held_by_the_loss_itself() -> None:
    model = nn.Linear(4, 1)
    weight = model.weight
    with pytest.raises(CaptureError, match="'weight' through a reference"):
        lowtide.capture(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            torch.randn(2, 4),
            lambda m, x: m(x).sum() + weight.pow(2).sum(),
        )


def test_what_is_no_model_or_optimizer() -> None:
    with pytest.raises(CaptureError, match=r"must be a torch\.nn\.Module, not builtin_function_or_method"):
        lowtide.capture(len, torch.optim.SGD(nn.Linear(1, 1).parameters()), torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match=r"must be a torch\.optim\.Optimizer"):
        lowtide.capture(nn.Linear(1, 1), None, torch.ones(1))  # type: ignore[arg-type]
