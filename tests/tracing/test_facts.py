"""What a captured step knows about its ops: phase, role, module, line, storages."""

import inspect
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.errors import BatchMismatch
from lowtide.graph.step_graph import StepGraph
from lowtide.records.vocabulary import Phase, Role
from tests.zoo import ZOO, often
from tests.zoo.models import Homemade


def captured(name: str) -> StepGraph:
    case = ZOO[name]()
    return lowtide.capture(case.model, torch.optim.Adam(case.model.parameters()), case.batch, case.loss)


@pytest.mark.parametrize("name", often(always=["bert"]))
def test_every_op_is_labelled(name: str) -> None:
    graph = captured(name)
    modules = {path for path, _ in graph.model.named_modules()}
    phases = [op.phase for op in graph.ops]
    assert phases == sorted(phases, key=list(Phase).index), "the phases follow each other"
    assert set(phases) == set(Phase)
    for op in graph.ops:
        assert op.module in modules
        assert op.source, op
        assert all(made.role in Role for made in op.outputs)
        assert {made.storage for made in op.outputs} <= set(op.writes) | set(op.reads)
    for storage in graph.storages:
        assert storage.resident == (storage.maker is None)


@pytest.mark.parametrize("name", often(["convnet", "bert", "mlp", "gpt2"], 2))
def test_backward_ops_belong_to_the_module_of_their_forward(name: str) -> None:
    graph = captured(name)
    for op in graph.ops:
        if op.forward is not None:
            assert graph.ops[op.forward].phase is Phase.FORWARD
            assert graph.ops[op.forward].module == op.module
    backward = {op.module for op in graph.ops if op.phase is Phase.BACKWARD and not op.is_view}
    assert set(graph.layers) <= backward


def test_roles() -> None:
    graph = captured("mlp")
    by_role = {role: [s.name for s in graph.storages if s.role is role] for role in Role}
    assert by_role[Role.PARAMETER] == [name for name, _ in graph.model.named_parameters()]
    assert len(by_role[Role.GRADIENT]) == 6
    assert sorted(by_role[Role.OPTIMIZER_STATE]) == sorted(
        f"{name}.{key}" for name, _ in graph.model.named_parameters() for key in ("step", "exp_avg", "exp_avg_sq")
    )
    assert {"batch[0]", "batch[1]"} <= set(by_role[Role.OTHER])
    activations = [graph.ops[uses.created].op for uses in graph.activations]
    assert activations == [
        "aten.relu.default",
        "aten.relu.default",
        "aten._log_softmax.default",
        "aten.nll_loss_forward.default",
    ]


def test_the_source_line_is_the_users() -> None:
    graph = captured("homemade")
    lines, first = inspect.getsourcelines(Homemade.forward)
    gelu = next(op for op in graph.ops if op.op == "aten.gelu.default")
    backward = next(op for op in graph.ops if op.op == "aten.gelu_backward.default")
    wanted = first + next(k for k, line in enumerate(lines) if "gelu" in line)
    assert gelu.source == backward.source == f"tests/zoo/models.py:{wanted}"


def test_batch_norm_statistics_are_written_by_the_op_that_hides_it() -> None:
    graph = captured("convnet")
    norms = [op for op in graph.ops if op.op == "aten.native_batch_norm.default"]
    assert len(norms) == 2
    for op in norms:
        written = {graph.storages[s].name.rsplit(".", 1)[-1] for s in op.writes if graph.storages[s].resident}
        assert written == {"running_mean", "running_var"}
        assert op.is_effect
    counters = [op for op in graph.ops if op.op == "aten.copy_.default"]
    assert [op.phase for op in counters] == [Phase.FORWARD, Phase.FORWARD], "eager counts in forward"


def test_views_make_no_bytes() -> None:
    graph = captured("bert")
    views = [op for op in graph.ops if op.is_view]
    assert views
    assert all(not op.makes and not op.writes for op in views)


def test_tied_weights_are_one_storage() -> None:
    graph = captured("gpt2")
    names = [s.name for s in graph.storages if s.role is Role.PARAMETER]
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names


def test_it_prints_as_python_with_a_line_per_op() -> None:
    graph = captured("convnet")
    text = str(graph)
    ops = [line for line in text.splitlines() if line.startswith("    ") and not line.strip().startswith("#")]
    assert len(ops) == len(graph.ops)
    line = next(line for line in ops if "aten.relu_(" in line)
    for part in ("forward", "activation float32[4, 8, 12, 12]", "live ", "| 2 |", "tests/zoo/models.py:"):
        assert part in line
    compile(graph.program.source, "program", "exec")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:2], y[:2]), r"batch\[0\] is float32\[2, 8\] on cpu.*captured for float32\[4, 8\] on cpu"),
        (lambda x, y: (x.double(), y), "float64"),
        (lambda x, y: (x, y, y), "structure"),
        (lambda x, y: (x, 3), r"batch\[1\] is 3"),
    ],
)
def test_a_batch_of_another_form_is_refused(change: object, message: str) -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, torch.optim.SGD(case.model.parameters(), lr=0.1), case.batch, case.loss)
    assert callable(change)
    with pytest.raises(BatchMismatch, match=message):
        graph(change(*case.batch))


def test_a_batch_in_other_strides_gives_the_same() -> None:
    case = ZOO["mlp"]()
    graph = lowtide.capture(case.model, torch.optim.SGD(case.model.parameters(), lr=0.0), case.batch, case.loss)
    x, y = case.batch
    assert torch.equal(graph((x.t().contiguous().t(), y)), graph((x, y)))


def test_constants_of_the_batch_are_part_of_its_form() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, scale: float) -> Any:
            return (self.layer(x) * scale).sum()

    model = Scaled()
    batch = {"x": torch.randn(2, 4), "scale": 2.0}
    graph = lowtide.capture(model, torch.optim.SGD(model.parameters(), lr=0.1), batch)
    graph(batch)
    with pytest.raises(BatchMismatch, match=r"batch\['scale'\] is 3\.0"):
        graph({**batch, "scale": 3.0})


def test_bytes_are_the_same_at_every_capture() -> None:
    """torch's cache of fake results forgets what a storage has beyond the value in it."""

    def shifted(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        moved = torch.zeros(4, 8)
        moved[:, 1:] = model(batch)[:, :-1]
        return moved.square().mean()

    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters())
    sizes = [[s.bytes for s in lowtide.capture(model, optimizer, torch.ones(4, 8), shifted).storages] for _ in range(3)]
    assert sizes[0] == sizes[1] == sizes[2]
