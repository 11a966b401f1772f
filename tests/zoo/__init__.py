"""Small models of many kinds, for capture and profile tests."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.zoo.models import ZOO, Case

__all__ = ["ZOO", "Case", "often"]

OFTEN = ("convnet", "bert", "homemade", "lstm")
"""A convolution and batch norm, attention and dropout, in-place ops and views, a loop."""


def often(names: Iterable[str] = ZOO, always: Iterable[str] = OFTEN) -> list[Any]:
    """Names as parameters of a test: those in `always` run in `make test`, the others in the slow set."""
    return [name if name in always else pytest.param(name, marks=pytest.mark.slow) for name in names]
