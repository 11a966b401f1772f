"""Which attributes a piece of code may read, from its bytecode."""

from collections.abc import Callable
from typing import Any

import pytest

from lowtide.watching.code import facts_of


def constant(x: Any) -> Any:
    return getattr(x, "gain", 1.0)


def called_for(x: Any) -> Any:
    return getattr(x, repr("gain"))


def called_with_words(x: Any) -> Any:
    return getattr(x, dict(name="gain")["name"])  # noqa: C408


def by_method(x: Any) -> Any:
    return getattr(x, "GAIN".lower())


def formatted(x: Any) -> Any:
    return getattr(x, f"gain{x}")


def added(x: Any) -> Any:
    return getattr(x, "ga" + x.rest)


def spread(x: Any) -> Any:
    return getattr(*x), str("gain".upper)


@pytest.mark.parametrize(
    ("function", "made_up"),
    [
        (constant, False),
        (called_for, True),
        (called_with_words, True),
        (by_method, True),
        (formatted, True),
        (added, True),
        (spread, True),
    ],
)
def test_names_that_are_made_up_are_seen(function: Callable[[Any], Any], made_up: bool) -> None:
    facts = facts_of(function.__code__)
    assert facts is not None
    assert facts.dynamic is made_up
