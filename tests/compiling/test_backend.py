"""Training under torch.compile with a budget: equal to torch's own aot_eager, and inside the budget as measured."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import lowtide
from lowtide.compiling.backend import backend
from lowtide.compiling.cycle import Cycle
from lowtide.compiling.loop import Loop, loops
from lowtide.compiling.settings import settings_of
from lowtide.device.live import live_bytes

KIB = 1024
Seen = list[list[Any]]
CPU = torch.device("cpu")


def block(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.1))


class Model(nn.Module):
    """Dropout and batch norm, so that what runs again must not draw and must not move statistics."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.first, self.second = (nn.Sequential(*(block(c) for c in cs)) for cs in ((3, 16), (16, 16)))
        self.head = nn.Linear(16, 2)
        self.broken = broken

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.broken:
            torch._dynamo.graph_break()
        logits: Tensor = self.head(self.second(x).mean((2, 3)))
        return logits


Step = Callable[[Any, nn.Module, torch.optim.Optimizer, Tensor, Tensor, int], Tensor]


def plain_step(
    compiled: Any, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, number: int
) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(compiled(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def clearing_late(
    compiled: Any, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, number: int
) -> Tensor:
    loss = F.cross_entropy(compiled(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def accumulating(
    compiled: Any, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, number: int
) -> Tensor:
    loss = F.cross_entropy(compiled(x), y)
    loss.backward()
    if number % 2:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


def autocast(
    compiled: Any, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, number: int
) -> Tensor:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(compiled(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def twice(
    compiled: Any, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, number: int
) -> Tensor:
    """Two calls of one graph are open at once, and an evaluation stands between the steps."""
    optimizer.zero_grad()
    loss = F.cross_entropy(compiled(x), y) + F.cross_entropy(compiled(x.flip(0)), y.flip(0))
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        compiled(x)
    model.train()
    return loss.detach()


def train(
    how: Any,
    options: dict[str, Any] | None,
    step: Step = plain_step,
    *,
    steps: int = 5,
    broken: bool = False,
    optimizer_of: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
) -> Seen:
    """Everything that can be compared, after each step, outside of torch's memory."""
    torch.manual_seed(0)
    model = Model(broken=broken)
    compiled = torch.compile(model, backend=how, options=options)
    optimizer = optimizer_of(model.parameters())
    seen = []
    for number in range(steps):
        torch.manual_seed(number)
        x, y = torch.randn(8, 3, 32, 32), torch.randint(2, (8,))
        loss = step(compiled, model, optimizer, x, y, number)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        states = [s for p in model.parameters() for s in optimizer.state[p].values()]
        after = [loss, torch.get_rng_state(), *gradients, *states, *model.parameters(), *model.buffers()]
        seen.append([x.detach().numpy().copy() for x in after])
    return seen


def assert_equal(ours: Seen, theirs: Seen) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert all(torch.equal(torch.tensor(a), torch.tensor(b)) for a, b in zip(mine, other, strict=True))


def budgeted(above: int) -> dict[str, Any]:
    """Options with a budget of `above` bytes beside what other tests have left alive."""
    return {"budget": live_bytes(CPU) + above, "time_limit": 1.0}


def only_loop() -> Loop:
    (loop,) = loops.values()
    return loop


def test_a_budget_is_met_and_training_is_equal() -> None:
    options = budgeted(3000 * KIB)
    ours = train(backend, options)
    loop = only_loop()
    assert any(graph.is_rewritten for graph in loop.graphs())
    assert loop.measured_peak is not None
    assert loop.predicted_peak is not None
    assert loop.measured_peak <= options["budget"]
    assert abs(loop.measured_peak - loop.predicted_peak) <= 0.01 * loop.predicted_peak
    assert_equal(ours, train("aot_eager", None))


@pytest.mark.slow
@pytest.mark.parametrize("step", [clearing_late, accumulating, autocast, twice])
def test_other_loops(step: Step) -> None:
    options = budgeted((8000 if step is twice else 3500) * KIB)
    ours = train(backend, options, step)
    loop = only_loop()
    assert any(graph.is_rewritten for graph in loop.graphs())
    assert loop.measured_peak is not None
    assert loop.measured_peak <= options["budget"]
    assert_equal(ours, train("aot_eager", None, step))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks at it
@pytest.mark.slow
def test_graphs_share_the_budget() -> None:
    options = budgeted(5500 * KIB)
    ours = train(backend, options, broken=True, steps=6)
    loop = only_loop()
    assert len(loop.graphs()) == 2
    assert any(graph.is_rewritten for graph in loop.graphs())
    assert loop.measured_peak is not None
    assert loop.measured_peak <= options["budget"]
    assert_equal(ours, train("aot_eager", None, broken=True, steps=6))


class Wide(nn.Module):
    """Its second graph takes much while it runs, and the first one has saved much meanwhile; by itself the first
    rises highest at its end, for its gradients, whatever it saves."""

    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.Linear(384, 384), nn.GELU(), nn.Dropout(0.1))]
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        torch._dynamo.graph_break()
        return (x.repeat(1, 12).tanh().sigmoid() ** 2).log_softmax(1).square().mean()


def train_wide(how: Any, options: dict[str, Any] | None, steps: int = 5, ballast: int = 0) -> Seen:
    torch.manual_seed(0)
    model = Wide()
    held = []
    compiled: Any = torch.compile(model, backend=how, options=options)
    optimizer = torch.optim.Adam(model.parameters())
    seen = []
    for number in range(steps):
        torch.manual_seed(number)
        loss = compiled(torch.randn(256, 384))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        held.append(torch.empty(ballast if number == 0 else 0, dtype=torch.uint8))
        seen.append([x.detach().numpy().copy() for x in (loss, *model.parameters())])
    return seen


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks at it
@pytest.mark.slow
def test_what_a_graph_saves_gives_way_to_another() -> None:
    theirs = train_wide("aot_eager", None)
    options = {"budget": live_bytes(CPU) + 60 * KIB * KIB, "time_limit": 1.0}
    train_wide(backend, options)
    peak = only_loop().measured_peak
    assert peak is not None
    assert not any(graph.is_rewritten for graph in only_loop().graphs())
    options["budget"] = peak - 3 * KIB * KIB
    torch._dynamo.reset()
    loops.clear()
    ours = train_wide(backend, options)
    loop = only_loop()
    assert loop.measured_peak is not None
    assert loop.predicted_peak is not None
    assert loop.measured_peak <= options["budget"]
    assert loop.predicted_peak <= options["budget"]
    assert_equal(ours, theirs)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks at it
@pytest.mark.slow
def test_a_budget_that_others_outgrow_is_refused_after_one_step(caplog: pytest.LogCaptureFixture) -> None:
    """What somebody else makes behind the first step leaves too little: one step says so, the next one raises."""
    ballast = 40 * KIB * KIB
    options = {"budget": live_bytes(CPU) + 60 * KIB * KIB, "time_limit": 0.5}
    with pytest.raises(lowtide.BudgetInfeasible, match="least peak reached"):
        train_wide(backend, options, ballast=ballast)
    said = [record.getMessage() for record in caplog.records]
    assert only_loop().cycles == 2
    assert ["more than the budget" in x for x in said] == [True]
    assert "are new since the step before" in said[0]


@pytest.mark.slow
def test_without_a_budget_nothing_is_rewritten() -> None:
    ours = train(backend, None, steps=3)
    assert not any(graph.is_rewritten for graph in only_loop().graphs())
    assert_equal(ours, train("aot_eager", None, steps=3))


def test_a_retained_graph_gives_the_same_gradients_twice() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    with torch._functorch.config.patch(donated_buffer=False):
        out = torch.compile(model, backend=backend)(torch.ones(2, 4)).sum()
        out.backward(retain_graph=True)
        first = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        out.backward()
    assert all(torch.equal(2 * a, p.grad) for a, p in zip(first, model.parameters(), strict=True) if p.grad is not None)


def test_parameters_that_change_before_backward_are_refused() -> None:
    last = nn.Linear(4, 4)
    model = nn.Sequential(nn.Linear(4, 4), last)
    out = torch.compile(model, backend=backend)(torch.ones(2, 4)).sum()
    with torch.no_grad():
        last.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


SIZES = (8, 8, 5, 8, 3, 5)


def train_sizes(how: Any, options: dict[str, Any] | None, *, dynamic: bool | None) -> Seen:
    torch.manual_seed(0)
    model = Model()
    compiled: Any = torch.compile(model, backend=how, options=options, dynamic=dynamic)
    optimizer = torch.optim.Adam(model.parameters())
    seen = []
    for number, size in enumerate(SIZES):
        torch.manual_seed(number)
        loss = plain_step(compiled, model, optimizer, torch.randn(size, 3, 32, 32), torch.randint(2, (size,)), number)
        seen.append([x.detach().numpy().copy() for x in (loss, *model.parameters(), *model.buffers())])
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True])
def test_each_size_gets_a_plan_of_its_own(*, dynamic: bool | None) -> None:
    """Dynamo leaves the size open at the second one, or from the beginning, and batch norm's momentum with it."""
    options = budgeted(3000 * KIB)
    ours = train_sizes(backend, options, dynamic=dynamic)
    loop = only_loop()
    assert not loop.unplanned
    assert sum(graph.is_rewritten for graph in loop.graphs()) >= 2
    assert all(graph.planned is not None for graph in loop.graphs())
    assert max(cycle.peak for cycle in loop._known.values()) <= options["budget"]
    torch._dynamo.reset()
    assert_equal(ours, train_sizes("aot_eager", None, dynamic=False))


@pytest.mark.filterwarnings("ignore")
def test_a_size_that_was_open_and_turns_out_to_be_fixed() -> None:
    """Dynamo opens a size behind a call that failed; the layer fixes it, and the graph is planned as any other."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(4, 4), nn.Linear(4, 4)
    theirs.load_state_dict(ours.state_dict())
    compiled = torch.compile(nn.Sequential(ours, nn.Tanh()), backend=backend, options=budgeted(10 * KIB * KIB))
    with pytest.raises(Exception, match="same reduction dim"):
        compiled(torch.ones(3, 5))
    compiled(torch.ones(3, 4)).sum().backward()
    nn.Sequential(theirs, nn.Tanh())(torch.ones(3, 4)).sum().backward()
    assert not only_loop().unplanned
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.equal(mine.grad, other.grad)


class Scaled(nn.Module):
    """Reads a float that is another one at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.scale *= 0.5
        scaled: Tensor = self.layer(x) * self.scale
        return scaled


def test_a_float_that_always_changes_is_not_compiled_for_ever(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowtide.compiling.sizes.VALUES", 2)
    ours, theirs = Scaled(), Scaled()
    theirs.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, backend=backend, options=budgeted(10 * KIB * KIB))
    for _ in range(6):
        for model in (compiled, theirs):
            model(torch.ones(3, 4)).sum().backward()
        gradients = [[p.grad for p in model.parameters() if p.grad is not None] for model in (ours, theirs)]
        assert all(torch.equal(mine, other) for mine, other in zip(*gradients, strict=True))
    assert len([r for r in caplog.records if "a float that its forward reads" in r.message]) == 1


def test_recompiles_are_counted_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(nn.Linear(4, 4), backend=backend, dynamic=False)
    with caplog.at_level("INFO", "lowtide"):
        for batch in (3, 5, 3):
            compiled(torch.ones(batch, 4)).sum().backward()
    loop = only_loop()
    (reason,) = loop.recompiles
    assert loop.compiled == 2
    assert "size mismatch" in reason
    assert any(reason in record.getMessage() for record in caplog.records)
    assert "2 graphs compiled (1 of them again)" in repr(loop)


def test_what_took_more_than_predicted_is_planned_again_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(settings_of({"budget": 1000}), CPU)
    for peak in (1100, 1100, 1100):
        with caplog.at_level("INFO", "lowtide"):
            loop._close(Cycle(0, peak=peak, inside=peak, predicted=900))
    said = [record.getMessage() for record in caplog.records]
    assert [("planned again" in x, "more than the budget" in x) for x in said[:2]] == [(True, False), (False, True)]
    assert loop._spared == 200


def test_a_module_that_is_compiled_already_is_refused() -> None:
    compiled: Any = torch.compile(nn.Linear(4, 4), backend="aot_eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    with pytest.raises(lowtide.LowtideError, match="compiled"):
        lowtide.train_step(compiled, optimizer, torch.ones(2, 4), lambda model, x: model(x).sum())


def test_a_module_that_is_compiled_in_place_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].compile(backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(lowtide.LowtideError, match=r"'0' is compiled in place by its method"):
        lowtide.train_step(model, optimizer, torch.ones(2, 4), lambda model, x: model(x).sum())


def test_what_is_compiled_twice_is_planned_once() -> None:
    """torch.compile itself looks through a compiled module: the last backend counts."""
    inner: Any = torch.compile(nn.Linear(4, 4), backend="aot_eager")
    outer: Any = torch.compile(inner, backend=backend)
    outer(torch.ones(2, 4)).sum().backward()
    assert only_loop().compiled == 1


def test_a_budget_below_what_is_there_is_refused() -> None:
    model = nn.Linear(64, 64)
    with pytest.raises(lowtide.InputError, match="on the device before forward"):
        torch.compile(model, backend=backend, options={"budget": 100})(torch.ones(2, 64))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match="there is no option 'bugdet'; there are budget, "):
        torch.compile(nn.Linear(2, 2), backend=backend, options={"bugdet": 1})(torch.ones(2, 2))


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["torch_dynamo_backends"] == {
        "lowtide": f"{backend.__module__}:{backend.__name__}"
    }
