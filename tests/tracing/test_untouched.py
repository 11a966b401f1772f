"""Whatever happens in a capture, the user's objects are as before."""

import copy
import cProfile
import functools
import gc
import itertools
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import lowtide
from lowtide.errors import CaptureError
from tests.equality import Trained, differences, eager_step
from tests.zoo import often

COUNT = 0
SEEN: list[Any] = []


def capture(model: nn.Module, loss: Any = None, **options: Any) -> Any:
    x = torch.randn(4, 8)
    return lowtide.capture(
        model, torch.optim.SGD(model.parameters(), lr=0.1), x, loss or (lambda m, b: m(b).mean()), **options
    )


def picture(model: nn.Module) -> list[Any]:
    """Every attribute of every module, by identity, in order."""
    found: list[Any] = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            inside: list[Any] = [(k, id(v)) for k, v in value.items()] if isinstance(value, dict) else []
            inside += [id(v) for v in value] if isinstance(value, list | deque) else []
            found.append((path, name, id(value), inside))
    return found


def test_a_module_under_two_names() -> None:
    layer = nn.Linear(8, 8)
    block = nn.Sequential(nn.Conv1d(1, 1, 3, padding=1), nn.BatchNorm1d(1))
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.Unflatten(1, (1, 8)), block, block, nn.Flatten())
    before, state = picture(model), {k: v.clone() for k, v in model.state_dict().items()}
    capture(model)
    assert picture(model) == before
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


class Changes(nn.Module):
    """Changes something of its own in forward."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.lstm = nn.LSTM(8, 8)
        self.n = 0
        self.h = torch.zeros(8)
        self.items: list[Any] = [1, [2]]
        self.table: OrderedDict[str, Any] = OrderedDict(a=1, b=2)
        self.names = {"x"}
        self.queue: deque[Any] = deque([1], maxlen=3)
        self.array = np.zeros(3)
        self.rng = random.Random(0)
        self.numpy_rng = np.random.default_rng(0)
        self.how = how

    def forward(self, x: Tensor) -> Any:
        """What was given, then a layer."""
        out = self.lstm(self.layer(x))[0]
        self.how(self, out)
        return out


def fail(model: Any, out: Any) -> None:
    model.n = 5
    model.items.append(out)
    raise ValueError("the user's own error")


def count(model: Any, out: Any) -> None:
    global COUNT
    COUNT += 1


CHANGES = {
    "a counter": (lambda m, out: setattr(m, "n", m.n + 1), r"model\.n \(from 0 to 1\)"),
    "a tensor": (lambda m, out: setattr(m, "h", out.detach()), r"attribute 'h'"),
    "a new attribute": (lambda m, out: setattr(m, "late", out), r"attribute 'late'"),
    "a list": (lambda m, out: m.items.append(out), r"model\.items"),
    "a nested list": (lambda m, out: m.items[1].append(m.n), r"model\.items\[1\]"),
    "a dict": (lambda m, out: m.table.update({str(len(m.table)): 3}), r"model\.table"),
    "a set": (lambda m, out: m.names.add(len(m.names)), r"model\.names"),
    "a deque": (lambda m, out: m.queue.append(len(m.queue)), r"model\.queue"),
    "an array": (lambda m, out: m.array.__iadd__(1), r"model\.array"),
    "a global": (count, r"\.COUNT \(from 0 to 1\)"),
    "a global list": (lambda m, out: SEEN.append(out), r"\.SEEN"),
    "its own generator": (lambda m, out: m.rng.random(), "Python's or numpy's generator"),
    "numpy's generator": (lambda m, out: m.numpy_rng.random(), "Python's or numpy's generator"),
    "a print": (lambda m, out: print("here"), "the step prints"),  # noqa: T201
    "an error": (fail, "the user's own error"),
}


@pytest.mark.parametrize("name", often(CHANGES, 4))
def test_a_change_is_refused_by_name_and_undone(name: str) -> None:
    how, message = CHANGES[name]
    model = Changes(how)
    before, array, draws = (
        picture(model),
        model.array.copy(),
        (model.rng.getstate(), model.numpy_rng.bit_generator.state),
    )
    with pytest.raises(CaptureError, match=message):
        capture(model)
    assert picture(model) == before
    assert (model.array == array).all()
    assert (model.rng.getstate(), model.numpy_rng.bit_generator.state) == draws
    assert (COUNT, SEEN) == (0, [])
    assert not any(isinstance(x, FakeTensor) for x in model.state_dict().values())


@pytest.mark.parametrize("name", often(["a tensor", "a print", "a counter", "a list", "a global list"], 2))
def test_a_change_that_does_not_matter_is_ignored_and_undone(name: str) -> None:
    model = Changes(CHANGES[name][0])
    before = picture(model)
    capture(model, side_effects="ignore")(torch.randn(4, 8))
    assert picture(model) == before
    assert SEEN == []


def test_a_hook_that_keeps_features_is_refused() -> None:
    features: list[Any] = []
    model = nn.Sequential(nn.Linear(8, 8))
    model[0].register_forward_hook(lambda m, args, out: features.append(out))
    with pytest.raises(CaptureError, match=r"features"):
        capture(model)
    assert features == []


def test_a_change_that_happens_once_is_harmless() -> None:
    class Settles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.kind: str | None = None

        def forward(self, x: Tensor) -> Any:
            if self.kind is None:
                self.kind = "regression"
            return self.layer(x) if self.kind == "regression" else x

    model = Settles()
    graph = capture(model)
    assert model.kind is None
    graph(torch.randn(4, 8))
    model(torch.randn(4, 8))
    assert model.kind == "regression"
    graph(torch.randn(4, 8))  # the step is the same before and after


def test_a_change_that_happens_once_and_matters_is_refused() -> None:
    class Initialises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.ready = False

        def forward(self, x: Tensor) -> Any:
            if not self.ready:
                self.ready = True
                return self.layer(x) * 2
            return self.layer(x)

    with pytest.raises(CaptureError, match=r"model\.ready \(from False to True\)"):
        capture(Initialises())


def test_a_cache_keeps_no_tensor_of_the_trace() -> None:
    @functools.lru_cache
    def ones(n: int) -> Tensor:
        return torch.ones(n)

    model = nn.Linear(8, 8)
    capture(model, lambda m, b: (m(b) * ones(8)).mean())
    assert not isinstance(ones(8), FakeTensor)


def take(iterator: Any) -> Callable[[nn.Module, Any], Any]:
    """A loss that takes a value from `iterator` in every step."""
    return lambda model, batch: model(batch).sum() * (next(iterator) is None)


def endless() -> Iterator[float]:
    while True:
        yield 2.0


@pytest.mark.parametrize(
    "make", [endless, lambda: itertools.count(1), lambda: iter([1.0, 2.0]), lambda: enumerate([1.0])]
)
@pytest.mark.parametrize("started", often([True, False], 1))
def test_an_iterator_that_moves_on_is_refused(make: Callable[[], Any], started: bool) -> None:
    iterator = itertools.chain(make(), endless()) if started else make()
    with pytest.raises(CaptureError, match=r"takes values from the variable 'iterator' around .*, which moves on"):
        capture(nn.Linear(8, 8), take(iterator))


def test_an_iterator_over_a_list_is_set_back() -> None:
    iterator = iter([1.0, 2.0])
    with pytest.raises(CaptureError, match="moves on"):
        capture(nn.Linear(8, 8), take(iterator))
    assert list(iterator) == [1.0, 2.0]


def test_an_iterator_that_is_made_in_the_step_is_no_effect() -> None:
    capture(nn.Linear(8, 8), lambda model, batch: model(batch.to(next(model.parameters()).dtype)).sum())


def test_a_change_in_backward_is_no_change_that_happens_once() -> None:
    """A second forward does not repeat it, because it has no backward."""
    model, seen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), [0]
    model[1].register_full_backward_hook(lambda *_: seen.append(1))
    with pytest.raises(CaptureError, match="changes"):
        capture(model, lambda model, batch: model(batch).sum())
    assert seen == [0]


def test_writing_to_a_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file, pytest.raises(CaptureError, match=r"test_untouched\.py:\d+: .* writes"):
        capture(nn.Linear(8, 8), lambda model, batch: (model(batch).sum(), file.write("x"))[0])


def test_the_users_profiler_goes_on_after_a_capture() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    capture(nn.Linear(8, 8), lambda model, batch: model(batch).sum())
    math.sqrt(2.0)
    profiler.disable()
    assert any("sqrt" in str(entry.code) for entry in profiler.getstats())


@pytest.mark.parametrize("foreach", [False, True])
def test_a_teacher_that_the_loss_averages(foreach: bool) -> None:
    """torch runs arithmetic of real tensors and numbers for real, also in a trace."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    ours, theirs = (Trained(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, copy.deepcopy(model)))
    teachers = [copy.deepcopy(model), copy.deepcopy(model)]

    def loss_with(teacher: nn.Module) -> Callable[[nn.Module, Any], Any]:
        def loss(model: nn.Module, batch: Any) -> Any:
            with torch.no_grad():
                if foreach:
                    torch._foreach_mul_(list(teacher.parameters()), 0.5)
                for mean, new in zip(teacher.parameters(), model.parameters(), strict=True):
                    mean.mul_(0.9).add_(new, alpha=0.1)
                wanted = teacher(batch)
            return (model(batch) - wanted).pow(2).mean() + model(batch).mean()

        return loss

    batch = torch.randn(4, 8)
    before = copy.deepcopy(teachers[0].state_dict())
    step = lowtide.train_step(ours.model, ours.optimizer, batch, loss_with(teachers[0]))
    assert all(torch.equal(before[k], v) for k, v in teachers[0].state_dict().items())
    for k in range(3):
        ours.loss = step(batch)
        eager_step(theirs, batch, loss_with(teachers[1]), k)
        theirs.optimizer.zero_grad()
        assert list(differences(ours, theirs)) == []
        assert all(map(torch.equal, teachers[0].parameters(), teachers[1].parameters()))


@pytest.mark.slow
def test_what_the_passes_of_a_capture_leave_behind_is_collected() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(8)))
    capture(model)  # what is made once
    gc.collect()
    gc.disable()
    try:
        graph = capture(model)
        left = gc.collect()
    finally:
        gc.enable()
    assert graph.ops
    assert left < 1000, "objects that nobody reads, behind a capture of some fifty ops"
