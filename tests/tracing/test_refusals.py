"""What cannot be captured gives one clear error that names the user's line and what to do."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import lowtide
from lowtide.errors import CaptureError
from tests.zoo import often

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


@pytest.mark.parametrize("name", often(REFUSED, 8))
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_kernel_that_does_not_repeat_itself(dtype: torch.dtype) -> None:
    model = nn.Linear(64, 32).to(dtype)

    def sgd(**options: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, **options)

    def loss(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(m(x).float())

    batch = torch.randn(2, 64, dtype=dtype)
    with pytest.raises(CaptureError, match=HERE + f".*fused SGD computes the momentum of {dtype}.*fused=False"):
        lowtide.capture(model, sgd(momentum=0.9, fused=True), batch, loss)
    for options in ({"fused": True}, {"momentum": 0.9}):
        lowtide.capture(model, sgd(**options), batch, loss)


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


ONE_PROCESS = (
    ".*a graph alone does not train on several ranks: give it to train_step, or the plain model in one process"
)


@pytest.fixture
def two_ranks() -> Iterator[None]:
    """A process group of two of which only this process exists."""
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("two_ranks")
def test_one_of_several_processes() -> None:
    with pytest.raises(CaptureError, match=HERE + ".*one of 2 processes" + ONE_PROCESS):
        capture(nn.Linear(4, 1))
    model = nn.Linear(4, 1)
    apart = (
        ".*which would train apart: give train_step the model under DistributedDataParallel or fully_shard, or process_"
    )
    with pytest.raises(CaptureError, match=HERE + ".*one of 2 processes" + apart):
        lowtide.train_step(model, torch.optim.SGD(model.parameters()), torch.ones(2, 4))


@pytest.mark.filterwarnings("ignore")  # torch's about a single process and a CPU
def test_models_over_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    try:
        with pytest.raises(
            CaptureError, match=HERE + ".*the model is a DistributedDataParallel" + ONE_PROCESS
        ) as caught:
            capture(nn.parallel.DistributedDataParallel(nn.Linear(4, 1)))
        assert ".module" not in str(caught.value)
        mesh = init_device_mesh("cpu", (1,))
        sharded = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        fsdp.fully_shard(sharded[1], mesh=mesh)
        with pytest.raises(CaptureError, match=HERE + ".*the module '1' is a FSDPModule" + ONE_PROCESS):
            capture(sharded)
        model = nn.Linear(4, 1)
        model.weight = nn.Parameter(distribute_tensor(model.weight, mesh, [Replicate()]))
        with pytest.raises(CaptureError, match=HERE + ".*weight is a DTensor" + ONE_PROCESS):
            capture(model)
    finally:
        distributed.destroy_process_group()


class Plain:
    """Anything else that holds an optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_an_optimizer_around_another() -> None:
    model = nn.Linear(4, 1)
    wrapped: Any = Plain(torch.optim.SGD(model.parameters()))
    with pytest.raises(CaptureError, match=HERE + r".*Plain .*give the one inside, optimizer\.optimizer"):
        lowtide.capture(model, wrapped, torch.ones(2, 4))


class Criterion(nn.Module):
    """A loss of somebody's own, in the usual form."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean error."""
        return (logits - target).abs().mean()


RECIPE = re.escape("loss=lambda model, batch: criterion(model(batch[0]), batch[1])")


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.MSELoss, F.cross_entropy, Criterion(), 3])
def test_a_criterion_is_no_loss_function(loss: Any) -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(CaptureError, match=HERE + ".*" + RECIPE) as caught:
        lowtide.capture(model, torch.optim.SGD(model.parameters()), (torch.ones(2, 4), torch.ones(2)), loss)
    assert "eagerly" not in str(caught.value)


def test_a_module_that_is_a_loss_function_is_one() -> None:
    class Whole(nn.Module):
        def forward(self, model: nn.Module, batch: Any) -> Tensor:
            value: Tensor = Criterion()(model(batch[0]), batch[1])
            return value

    model = nn.Linear(4, 3)
    lowtide.capture(model, torch.optim.SGD(model.parameters()), (torch.ones(2, 4), torch.ones(2, 3)), Whole())


@pytest.mark.parametrize(
    ("batch", "recipe"),
    [
        ((torch.ones(2, 4), torch.ones(2)), "model(batch[0]), batch[1]"),
        ({"x": torch.ones(2, 4), "y": torch.ones(2)}, "model(batch['x']), batch['y']"),
        ({"x": torch.ones(2, 4)}, "model(batch['x']), batch[...]"),
    ],
)
def test_a_batch_that_forward_does_not_take(batch: Any, recipe: str) -> None:
    model = nn.Linear(4, 3)
    recipe = re.escape(f"loss=lambda model, batch: criterion({recipe})")
    with pytest.raises(CaptureError, match=HERE + r".*passed as model\(\*.*batch\).*" + recipe) as caught:
        lowtide.capture(model, torch.optim.SGD(model.parameters()), batch)
    assert caught.value.__context__ is None
    assert "eagerly" not in str(caught.value)


def test_a_type_error_inside_of_forward_is_its_own() -> None:
    with pytest.raises(CaptureError, match=HERE + ".*TypeError: mine"):
        capture(Odd(lambda m, x: (_ for _ in ()).throw(TypeError("mine"))))


def test_sparse_tensors_and_lazy_modules() -> None:
    with pytest.raises(CaptureError, match=HERE + r".*batch is a torch.sparse_coo tensor.*\.to_dense\(\)"):
        capture(nn.Linear(4, 1), torch.eye(4).to_sparse())
    model = nn.Linear(4, 1)
    model.register_buffer("mask", torch.eye(4).to_sparse())
    with pytest.raises(CaptureError, match=HERE + r".*mask is a torch.sparse_coo tensor.*\.to_dense\(\)"):
        capture(model)
    for lazy, name in ((nn.LazyLinear(3), "weight"), (nn.Sequential(nn.LazyBatchNorm1d()), "0.weight")):
        with pytest.raises(CaptureError, match=HERE + f".*{name} has no shape yet: run the model once"):
            capture(lazy)


class Mine(Tensor):
    """Has a function of its own for everything."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            return func(*args, **(kwargs or {}))


def test_tensors_with_functions_of_their_own() -> None:
    batch = torch.randn(4, 8).as_subclass(Mine)
    with pytest.raises(CaptureError, match=HERE + r".*batch is a Mine, which has functions of its own.*as_subclass"):
        capture(nn.Linear(8, 4), batch)


class Counts(TorchDispatchMode):
    """Sees every op."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (Counts, "a Counts is on, which works on the ops of eager.*leave it"),
        (lambda: torch.autograd.set_detect_anomaly(True), "set_detect_anomaly is on.*switch it off"),
        (parametrize.cached, r"parametrize\.cached\(\) is on.*inside of the loss function"),
    ],
)
def test_what_works_on_eager_alone(context: Any, message: str) -> None:
    with context(), pytest.raises(CaptureError, match=HERE + ".*" + message):
        capture(nn.Linear(8, 4), torch.randn(4, 8))


def test_numpy_arrays_in_a_batch() -> None:
    model = nn.Linear(4, 3)
    batch = {"input": torch.ones(2, 4), "more": [np.ones(3)]}
    for make in (lowtide.capture, lowtide.train_step):
        with pytest.raises(CaptureError, match=HERE + r".*batch\['more'\]\[0\] is a numpy array.*torch\.from_numpy"):
            make(model, torch.optim.SGD(model.parameters()), batch)


@pytest.mark.parametrize("make", often([lowtide.train_step, lowtide.capture], 1))
def test_the_line_is_the_users_also_from_train_step(make: Any) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for given in ((model, None), (model, torch.optim.LBFGS(model.parameters())), (model, Plain(optimizer))):
        with pytest.raises(CaptureError, match="^" + HERE):
            make(*given, torch.ones(2, 4))
    with pytest.raises(CaptureError, match="^" + HERE):
        make(model, optimizer, 3)
    with pytest.raises(CaptureError, match=HERE) as caught:
        make(Odd(REFUSED["random"][0]), torch.optim.SGD(model.parameters()), torch.ones(3, 4))
    assert "contextlib" not in str(caught.value)
    updates = (op.source for op in lowtide.capture(model, optimizer, torch.ones(2, 4), lambda m, x: m(x).sum()).ops)
    assert all(re.fullmatch(HERE, source) for source in updates)
    step = lowtide.train_step(model, optimizer, torch.ones(2, 4), lambda m, x: m(x).sum())
    assert all(re.fullmatch(HERE, op.source) for op in step.graph.ops)
