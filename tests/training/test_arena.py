"""Training at planned addresses: the same bits, no page faults, and nothing left behind."""

import gc
import resource
import weakref

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.device import arena, shim
from tests.equality import Trained
from tests.training.test_train_step import adam, assert_equal, deep_convnet, setting

needs_compiler = pytest.mark.skipif(shim.compiler() is None, reason="no C++ compiler on this machine")


@needs_compiler
@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_at_planned_addresses_are_equal_to_eager(accumulate: int) -> None:
    case = deep_convnet()
    ours, theirs = setting(case)
    step = lowtide.train_step(
        ours.model, ours.optimizer, case.batch, case.loss, "70%", accumulate=accumulate, time_limit=1, progress=False
    )
    assert_equal(case, ours, theirs, step, calls=5 * accumulate, accumulate=accumulate)
    counts = step.allocations
    assert counts is not None
    assert (counts.unforeseen, counts.taken) == (0, 0)
    assert counts.placed > 50
    assert f"; last step: {counts.placed} as planned, {counts.kept} outlive it, 0 elsewhere" in step.explain()


@needs_compiler
def test_a_step_takes_no_pages_from_the_system() -> None:
    """Convolutions of 4 MiB each, which malloc maps and unmaps one by one."""
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Tanh())]
    model = nn.Sequential(nn.Conv2d(3, 16, 1), *layers)
    step = lowtide.train_step(model, adam(model), torch.randn(4, 3, 128, 128), mean, sentinel=False)
    batch, faults = torch.randn(4, 3, 128, 128), []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        step(batch)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert max(faults[3:]) < 100, faults
    assert step.arena_bytes is not None
    assert step.arena_bytes > 2**24


def mean(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()  # type: ignore[no-any-return]


class Failing(torch.optim.SGD):
    """Raises when told to, in the middle of a step."""

    fails = False

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        if self.fails:
            raise RuntimeError("told to fail")
        super().step()


@needs_compiler
def test_after_a_step_that_failed_the_next_are_right() -> None:
    case = deep_convnet()
    ours = Trained(case.model, Failing(case.model.parameters(), lr=1e-2))
    step = lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, sentinel=False)
    for _ in range(3):
        step(case.batch)
    ours.optimizer.fails = True  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="told to fail") as kept:
        step(case.batch)
    ours.optimizer.fails = False  # type: ignore[attr-defined]
    theirs = ours.copy()
    assert_equal(case, ours, theirs, step, calls=3)
    assert kept.value.__traceback__ is not None, "its frames hold tensors of the step all the while"


@pytest.mark.slow
@needs_compiler
def test_two_models_take_turns_and_one_goes() -> None:
    first, second = deep_convnet(), deep_convnet()
    pairs = [setting(case) for case in (first, second)]
    steps = [
        lowtide.train_step(ours.model, ours.optimizer, case.batch, case.loss, sentinel=False)
        for case, (ours, _) in zip((first, second), pairs, strict=True)
    ]
    for _ in range(2):
        for case, (ours, theirs), step in zip((first, second), pairs, steps, strict=True):
            assert_equal(case, ours, theirs, step, calls=2)
    there = weakref.ref(steps[0]._arena)
    del steps[0], step
    gc.collect()
    assert there() is None, "an unloaded step gives its memory back"
    assert_equal(second, *pairs[1], steps[0], calls=2)


def test_without_a_compiler_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "compiler", lambda: None)
    model = nn.Linear(4, 4)
    step = lowtide.train_step(model, adam(model), torch.randn(2, 4), mean, sentinel=False)
    step(torch.randn(2, 4))
    assert (step.arena_bytes, step.allocations) == (None, None)
    assert "planned addresses need a C++ compiler" in step.explain()
