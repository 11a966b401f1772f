"""The register of layers and functions that programs are composed of, and the choices that each of them makes."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Choice = TypeVar("Choice")
Shape = tuple[int, ...]
"""Batch first, always: (N, F), (N, T, F), (N, C, H, W) or (N, C, D, H, W)."""
Function = Callable[[Tensor], Tensor]

ANY = (2, 3, 4, 5)


class Pick:
    """Draws from a seed and remembers by name what was drawn, so that a program can be listed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.said: dict[str, Any] = {}

    def __call__(self, name: str, *options: Choice) -> Choice:
        chosen = self._random.choice(options)
        self.said[name] = chosen
        return chosen

    def some(self, name: str, options: list[Choice], number: int) -> list[Choice]:
        """Several different ones."""
        chosen = self._random.sample(options, number)
        self.said[name] = chosen
        return chosen


Build = Callable[[Shape, Pick], nn.Module]


@dataclass(frozen=True)
class Kind:
    """One kind of layer or function: which numbers of dimensions it takes, and how it is made for a shape."""

    name: str
    ranks: tuple[int, ...]
    build: Build
    weight: int = 10
    """How often it is drawn, beside the others."""


KINDS: dict[str, Kind] = {}


def layer(*ranks: int, weight: int = 10, name: str | None = None) -> Callable[[Build], Build]:
    """Register what makes a module."""

    def register(build: Build) -> Build:
        called = name or build.__name__
        if called in KINDS:
            raise ValueError(f"two kinds are called {called}")
        KINDS[called] = Kind(called, ranks or ANY, build, weight)
        return build

    return register


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """What the function returns."""
        return self.function(x)


def function(*ranks: int, weight: int = 10) -> Callable[[Callable[[Shape, Pick], Function]], Build]:
    """Register what makes a function of one tensor."""

    def register(make: Callable[[Shape, Pick], Function]) -> Build:
        def build(shape: Shape, pick: Pick) -> nn.Module:
            return Call(make(shape, pick))

        return layer(*ranks, weight=weight, name=make.__name__)(build)

    return register


class Adapt(nn.Module):
    """Gives a tensor the shape that the next layer takes: repeats or cuts what belongs to one sample."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """(N, anything) to (N, *shape)."""
        wanted = 1
        for size in self.shape:
            wanted *= size
        flat = x.flatten(1)
        while flat.shape[1] < wanted:
            flat = flat.repeat(1, 2)
        return torch.unflatten(flat[:, :wanted], 1, self.shape)

    def extra_repr(self) -> str:
        """The shape without the batch."""
        return str(self.shape)
