"""Which attributes a piece of code may read, from its bytecode: in the words of Python 3.11 to 3.13."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from lowtide.watching.code import _asks_for_made_up_names, facts_of


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


class Line(NamedTuple):
    """A line as `dis` gives it."""

    opname: str
    argval: Any
    argrepr: str = ""


GETATTR = {
    "3.12": Line("LOAD_GLOBAL", "getattr", "NULL + getattr"),
    "3.13": Line("LOAD_GLOBAL", "getattr", "getattr + NULL"),
}
X, NAME, CALL = Line("LOAD_FAST", "x", "x"), Line("LOAD_CONST", "gain", "'gain'"), Line("CALL", 2)


@pytest.mark.parametrize(
    ("version", "arguments", "made_up"),
    [
        ("3.12", (X, NAME, CALL), False),
        ("3.12", (X, Line("LOAD_ATTR", "f", "f"), NAME, CALL), False),
        ("3.12", (X, Line("LOAD_ATTR", "f", "NULL|self + f"), NAME, CALL), True),
        ("3.12", (X, Line("LOAD_GLOBAL", "f", "NULL + f"), NAME, CALL), True),
        ("3.12", (X, NAME, X, Line("FORMAT_VALUE", 0), Line("BUILD_STRING", 2), CALL), True),
        ("3.13", (X, NAME, CALL), False),
        ("3.13", (X, Line("LOAD_GLOBAL", "f", "f + NULL"), NAME, Line("CALL_KW", 1)), True),
        ("3.13", (X, Line("LOAD_ATTR", "f", "f + NULL|self"), NAME, CALL), True),
        ("3.13", (X, NAME, X, Line("FORMAT_SIMPLE", None), CALL), True),
    ],
)
def test_later_pythons_say_it_in_other_words(version: str, arguments: tuple[Line, ...], made_up: bool) -> None:
    assert _asks_for_made_up_names((GETATTR[version], *arguments)) is made_up  # type: ignore[arg-type]
