"""The graph runs the kernels that eager runs, on the strides that eager has, so every bit is the same."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from tests.equality import Trained, differences, eager_step
from tests.zoo import often

Body = Callable[[list[Tensor], Tensor], Tensor]
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "batch second": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "reversed": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
}


class Small(nn.Module):
    """Parameters of given values, and a loss made of them."""

    def __init__(self, body: Body, values: list[Tensor]) -> None:
        super().__init__()
        self.values = nn.ParameterList([nn.Parameter(value) for value in values])
        self._body = body

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        return self._body(list(self.values), x)


def different(body: Body, values: list[Tensor], x: Tensor, others: Iterable[list[Tensor]] = ()) -> list[str]:
    """What differs after a step, and after one with each of the `others`: values of the parameters, then a batch. The
    profile compares the strides of every op as well."""
    model = Small(body, values)
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, x)
    lowtide.profile(graph, runs=1, quick=True)
    found: list[str] = []
    for given in ([*values, x], *others):
        for trained in (ours, theirs):
            for parameter, value in zip(trained.model.parameters(), given[:-1], strict=True):
                parameter.data.copy_(value)
        torch.manual_seed(0)
        ours.loss = graph(given[-1], keep_gradients=True)
        eager_step(theirs, given[-1], None, 0)
        found += differences(ours, theirs)
    return found


def assert_same(body: Body, shapes: list[tuple[int, ...]], x: tuple[int, ...], tries: int = 5) -> None:
    *values, batch = [torch.randn(shape) for shape in (*shapes, x)]
    others = [[torch.randn(shape) for shape in (*shapes, x)] for _ in range(tries - 1)]
    assert different(body, values, batch, others) == []


@pytest.mark.parametrize("reduction", often(["mean", "sum", "none"], ["mean"]))
def test_binary_cross_entropy_with_logits(reduction: str) -> None:
    def body(p: list[Tensor], x: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(x @ p[0], x[:, :5].sigmoid(), reduction=reduction).sum()

    assert_same(body, [(8, 5)], (16, 8), tries=6)


LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": F.elu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "leaky_relu": F.leaky_relu,
    "glu": lambda x: F.glu(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "copysign": lambda x: torch.copysign(x, x.flip(1)),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(1)),
    "roll": lambda x: x.roll(1, 2),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    "mse_loss": lambda x: F.mse_loss(x, x.detach().flip(1), reduction="none"),
    "huber_loss": lambda x: F.huber_loss(x, x.detach().flip(1), reduction="none"),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "quantile": lambda x: x.quantile(0.3, dim=1),
    "norm of order three": lambda x: x.norm(3, dim=1),
}


@pytest.mark.parametrize("layer", often(LAYERS, ["batch_norm"]))
def test_strides_are_those_of_the_kernels(layer: str) -> None:
    """In all layouts, of what comes in and of the gradient."""
    torch.manual_seed(0)
    layouts = list(LAYOUTS.values())
    shape = LAYERS[layer](torch.ones(2, 4, 6, 6)).shape
    weights = [layout(torch.randn(shape)) if len(shape) == 4 else torch.randn(shape) for layout in layouts]

    def body(p: list[Tensor], x: Tensor) -> Tensor:
        return sum(((LAYERS[layer](a) * b).sum() for a in p for b in weights), torch.zeros(()))

    assert different(body, [layout(torch.randn(2, 4, 6, 6)) for layout in layouts], torch.ones(1)) == []


def test_batch_norm_between_two_transposes() -> None:
    def body(p: list[Tensor], x: Tensor) -> Tensor:
        h = F.batch_norm((x @ p[0]).transpose(1, 2), None, None, training=True)
        return F.linear(h.transpose(1, 2), p[1]).exp().mean()

    assert_same(body, [(4, 6), (3, 6)], (2, 5, 4))


def test_max_pool1d_of_data_is_contiguous() -> None:
    """Found by fuzzing (seed 30343): without a gradient eager has another kernel, with other strides."""

    def body(p: list[Tensor], x: Tensor) -> Tensor:
        data = x.transpose(1, 2).contiguous().transpose(1, 2)
        with torch.no_grad():
            sure = F.max_pool1d(data * p[0], 3, 1)
        pooled = F.max_pool1d(data, 3, 1) + sure
        far: Tensor = torch.linalg.vector_norm(pooled, dim=-1, keepdim=True)
        return ((far + pooled) * p[0][:6]).sum()

    assert_same(body, [(8,)], (4, 5, 8))


def nuclear(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(x, "nuc")
    return norm[..., None]


@pytest.mark.parametrize("values", often([torch.linalg.svdvals, torch.linalg.eigvalsh, nuclear], 1))
def test_singular_values_of_data_come_without_vectors(values: Callable[[Tensor], Tensor]) -> None:
    def body(p: list[Tensor], x: Tensor) -> Tensor:
        return (values(x + x.mT) * p[0]).sum()

    assert_same(body, [(6,)], (2, 4, 6, 6), tries=2)


def test_affine_grid() -> None:
    def body(p: list[Tensor], x: Tensor) -> Tensor:
        return F.grid_sample(x, F.affine_grid(p[0], [2, 3, 5, 5], align_corners=False), align_corners=False).sum()

    assert_same(body, [(2, 2, 3)], (2, 3, 5, 5))


def _slice(p: list[Tensor], x: Tensor) -> Any:
    whole = p[0] @ p[1]
    part = whole[:, :16]
    part.mul_(p[2])
    return (part @ p[3]).sum() + (whole * whole).sum() + part.mean()


def _transposed(p: list[Tensor], x: Tensor) -> Any:
    whole = p[0] @ p[1]
    turned = whole.view(4, 10, 40).transpose(0, 1)
    turned.mul_(0.2)
    row = whole[1]
    turned[:, 1].mul_(2)
    turned.add_(1)
    return (whole @ p[1]).sum() + row.sum() + turned.cumsum(1).tanh().sum()


def _every_other(p: list[Tensor], x: Tensor) -> Any:
    some = (p[0] @ p[1])[:, ::2]
    row = some[1]
    some.add_(1)
    row.mul_(2)
    some.mul_(0.3)
    return (some @ p[2].t()).sum() + row.sum() + some.mean(0).exp().sum()


@pytest.mark.parametrize("body", often([_transposed, _slice, _every_other], 1))
def test_what_is_overwritten_in_place_and_read_under_two_names(body: Body) -> None:
    assert_same(body, [(40, 40), (40, 40), (40, 16) if body is _slice else (40, 20), (16, 16)], (1,))


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("layout", often(LAYOUTS, list(LAYOUTS)[:1]))
def test_a_shuffle_that_moves_no_channel_is_a_copy(layout: str, groups: int) -> None:
    """Of as many groups as channels found by fuzzing (seed 31320): its bytes were taken for those of its input."""

    def body(p: list[Tensor], x: Tensor) -> Tensor:
        return F.channel_shuffle(LAYOUTS[layout](p[0] * x), groups).relu().sum()

    lone = Small(body, [torch.ones(2, 4, 3, 3)])
    graph = lowtide.capture(lone, torch.optim.SGD(lone.parameters(), lr=0.1), torch.ones(2, 4, 3, 3))
    assert not any("channel_shuffle" in op.op for op in graph.ops)

    assert_same(body, [(2, 4, 3, 3)], (2, 4, 3, 3), tries=2)


def test_a_strided_buffer_takes_every_change_in_place() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("mean", torch.stack([torch.zeros(4, 3)] * 2, -1)[..., 0])
            self.mean: Tensor

        def forward(self, x: Tensor) -> Any:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x, alpha=0.1)
            return self.layer(x - self.mean).square().sum()

    model, x = Average(), torch.randn(4, 3)
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, x)
    for step in range(3):
        ours.loss = graph(x, keep_gradients=True)
        eager_step(theirs, x, None, step)
        assert list(differences(ours, theirs)) == [], f"step {step}"


def test_a_view_of_what_was_changed_in_place_can_be_returned() -> None:
    def loss(model: nn.Module, x: Tensor) -> Any:
        out = model(x).clamp(-1, 1).sub_(0.1)[:, :3]
        return out.sum(), out.detach()

    model, x = nn.Linear(3, 4), torch.randn(4, 3)
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = ours.copy()
    ours.loss = lowtide.capture(ours.model, ours.optimizer, x, loss)(x, keep_gradients=True)
    eager_step(theirs, x, loss, 0)
    assert list(differences(ours, theirs)) == []


CASTING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bilinear": lambda p, x: F.bilinear(x, x, p.expand(2, 6, 6)),
    "affine_grid": lambda p, x: F.affine_grid(p[:2, :3].expand(2, 2, 3), [2, 1, 4, 4], align_corners=True),
    "pinv": lambda p, x: torch.linalg.pinv(p),
}


@pytest.mark.parametrize("name", CASTING)
def test_a_kernel_that_casts_inside_is_refused_under_autocast(name: str) -> None:
    """That of affine_grid found by fuzzing (seed 30870): eager multiplies in bfloat16 there."""

    def body(p: list[Tensor], x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return CASTING[name](p[0], x).float().sum()

    model = Small(body, [torch.eye(6) + 0.1])
    with pytest.raises(lowtide.CaptureError, match=f"{name}.* takes part in autocast"):
        lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 6))


@pytest.mark.parametrize("given", [True, False])
def test_what_overlaps_is_not_changed_in_place(given: bool) -> None:
    """Of a batch found by fuzzing (seed 30833)."""

    def body(p: list[Tensor], x: Tensor) -> Tensor:
        return ((x if given else x * 2).unfold(1, 2, 1).mul_(0.5) * p[0]).sum()

    model = Small(body, [torch.ones(1)])
    with pytest.raises(lowtide.CaptureError, match=r"test_same_kernels.py:\d+: an op in place .*overlap"):
        lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 6))


def test_backward_is_outside_of_autocast_that_is_around_the_step() -> None:
    """As in everybody's recipe; a backward inside would multiply in bfloat16."""

    class Inverse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(6) + 0.1 * torch.randn(6, 6))

        def forward(self, x: Tensor) -> Any:
            return torch.linalg.inv(self.weight).pow(2).sum() + (x @ self.weight).float().sum()

    model, x = Inverse(), torch.randn(4, 6)
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.01))
    theirs = ours.copy()
    step = lowtide.train_step(ours.model, ours.optimizer, x)
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            ours.loss = step(x)
            theirs.loss = theirs.model(x)
        theirs.loss.backward()
        theirs.optimizer.step()
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == []
