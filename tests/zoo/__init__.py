"""Small models of many kinds, for capture and profile tests."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.zoo.models import ZOO, Case

__all__ = ["ZOO", "Case", "often"]

OFTEN = ("convnet", "bert", "homemade", "lstm")
"""A convolution and batch norm, attention and dropout, in-place ops and views, a loop."""


def often(values: Iterable[Any] = ZOO, always: Iterable[Any] | int = OFTEN) -> list[Any]:
    """Parameters of a test: those in `always`, or the first so many, run in `make test`, the others in the slow set."""
    found = list(values)
    kept = found[:always] if isinstance(always, int) else list(always)
    rest = [pytest.param(*x if isinstance(x, tuple) else (x,), marks=pytest.mark.slow) for x in found]
    return [x if x in kept else slow for x, slow in zip(found, rest, strict=True)]
