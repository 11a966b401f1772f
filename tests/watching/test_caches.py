"""Functions under `functools.lru_cache`: what they computed at the first step is what they give from then on."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from lowtide.errors import CaptureError

Scale = Callable[[], Any]


def _number(settings: Any) -> Any:
    @functools.lru_cache
    def scale(*parts: Any, **words: Any) -> Any:
        return settings.beta * len(parts) + len(words)

    scale(9)
    return scale, lambda: scale(1) * scale("a", 2.0) * scale(3, beta=1, gamma=2) * scale((1,)) * scale(9)


def _unbounded(settings: Any) -> Any:
    @functools.cache
    def scale(n: int) -> Tensor:
        return torch.full((n,), settings.beta)

    return scale, lambda: scale(4)


def losses(make: Callable[[Any], Any], *, ours: bool, clears: bool) -> list[Tensor]:
    torch.manual_seed(0)
    settings = SimpleNamespace(beta=0.5)
    cached, scale = make(settings)
    model, batch = nn.Linear(8, 4), torch.ones(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda m, b: (m(b) * scale()).mean()  # noqa: E731
    step = lowtide.train_step(model, optimizer, batch, loss, sentinel=False) if ours else None
    found = []
    for k in range(5):
        settings.beta = 0.25 * (k + 1)  # also before the first step
        if clears and k == 3:
            cached.cache_clear()
        if step is not None:
            found.append(step(batch).clone())
            continue
        optimizer.zero_grad()
        value: Tensor = loss(model, batch)  # type: ignore[no-untyped-call]
        value.backward()
        optimizer.step()
        found.append(value.detach())
    return found


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("make", [_number, _unbounded])
def test_as_in_eager(make: Callable[[Any], Any], clears: bool) -> None:
    eager = losses(make, ours=False, clears=clears)
    assert all(map(torch.equal, losses(make, ours=True, clears=clears), eager))


def test_tensors_of_one_step_are_refused() -> None:
    model = nn.Linear(8, 4)

    @functools.lru_cache
    def noise() -> Tensor:
        return torch.rand(4)

    @functools.lru_cache
    def norm() -> Tensor:
        return next(model.parameters()).detach().abs().sum()

    for kept in (noise, norm):
        with pytest.raises(CaptureError, match=rf"{kept.__name__}\(\) keeps a tensor of its first call"):
            lowtide.capture(
                model,
                torch.optim.SGD(model.parameters(), lr=0.1),
                torch.ones(4, 8),
                lambda m, b, kept=kept: (m(b) * kept()).mean(),  # type: ignore[misc]
            )
        assert kept.cache_info().currsize == 0
