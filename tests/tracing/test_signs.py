"""The variant of a step that keeps signs: which ReLUs it finds, and what becomes of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.packing import pack_bits, sign_backward
from lowtide.optimizer.update import UpdateForm
from lowtide.records.vocabulary import Phase, Role
from lowtide.tracing.capture import Traced, trace
from tests.zoo import ZOO, often

# ReLU in front of dropout, mean or average pooling; not in front of a convolution, a linear layer or a max-pool.
FOUND = {
    "mlp": [],
    "convnet": ["relu_1"],
    "encoder": ["relu", "relu_1"],
    "t5": ["relu", "relu_1", "relu_2", "relu_3"],
    "segformer": ["relu"],
    "resnet": ["relu_9"],
    "autocast_convnet": ["relu_1"],
    "homemade": [],
    "bert": [],
}


def traced(name: str) -> Traced:
    """A model of the zoo."""
    case = ZOO[name]()
    return trace(case.model, torch.optim.SGD(case.model.parameters(), lr=0.1), case.batch, case.loss)


def kept_as_signs(graph: StepGraph) -> list[str]:
    """Names of the ReLUs."""
    return [op.node.all_input_nodes[0].name for op in graph.ops if op.node.target is pack_bits]


@pytest.mark.parametrize("name", often(FOUND, ["convnet", "encoder"]))
def test_the_right_relus_are_found(name: str) -> None:
    step = traced(name)
    plain, signs = step.finish(UpdateForm()), step.finish(UpdateForm(), signs=True)
    assert kept_as_signs(signs) == FOUND[name]
    assert step.signs == len(FOUND[name]) == len(signs.signs)
    assert not plain.signs
    names = [op.name for op in signs.ops if op.node.target is not pack_bits]
    assert names == [op.name for op in plain.ops]
    assert not any(op.node.target is sign_backward for op in plain.ops)


def test_bits_are_the_activations_now() -> None:
    step = traced("encoder")
    plain, signs = step.finish(UpdateForm()), step.finish(UpdateForm(), signs=True)
    before = {plain.storages[uses.storage].name: plain.storages[uses.storage].bytes for uses in plain.activations}
    after = {signs.storages[uses.storage].name: signs.storages[uses.storage].bytes for uses in signs.activations}
    assert before.keys() - after.keys() == {"relu", "relu_1"}
    assert after.keys() - before.keys() == {"signs_of_relu", "signs_of_relu_1"}
    assert after["signs_of_relu"] * 32 == before["relu"]
    for op in signs.ops:
        if op.node.target is pack_bits:
            behind = signs.ops[op.rank - 1]
            assert (behind.op, behind.module, behind.source) == ("aten.relu.default", op.module, op.source)
            assert (op.phase, op.repeats, op.role) == (Phase.FORWARD, True, Role.ACTIVATION)
        if op.node.target is sign_backward:
            assert op.forward is not None
            assert signs.ops[op.forward].op == "aten.relu.default"
    saved = sum(before.values()) - sum(after.values())
    assert saved == 2 * (3 * 6 * 32) * (4 - 1 / 8)


class Around(nn.Module):
    """A ReLU between two scales, and something done with its result."""

    def __init__(self, use: Callable[[Tensor], Tensor], width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        """The loss."""
        return self.use(F.relu(x * self.scale)).sum()


@pytest.mark.parametrize(
    ("use", "width", "expected"),
    often(
        [
            (lambda y: y * 2, 20, 1),
            (lambda y: y.view(-1) * 2, 20, 1),
            (lambda y: y * y, 20, 0),
            (lambda y: y.view(-1)[::2].pow(3), 20, 0),
            (lambda y: y.t().tanh() + y.t(), 20, 1),
            (lambda y: y.t() * y.detach().t(), 20, 0),
            (lambda y: y.abs(), 20, 0),
            (lambda y: y * 2, 12, 0),  # 60 elements
            (lambda y: y, 20, 0),  # the gradient is one number for all
        ],
        4,
    ),
    ids=["scaled", "viewed", "squared", "a view read", "tanh of a view", "detached", "abs", "small", "expanded"],
)
def test_only_where_nothing_else_reads_the_result(use: Callable[[Tensor], Tensor], width: int, expected: int) -> None:
    model = Around(use, width)
    step = trace(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(5, width))
    assert step.signs == expected
    assert len(kept_as_signs(step.finish(UpdateForm(), signs=True))) == expected


def test_a_result_that_is_returned_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(20, 20), nn.ReLU())

    def loss(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor]:
        out = model(batch)
        return (out * 2).sum(), out

    step = trace(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(5, 20), loss)
    assert step.signs == 0
