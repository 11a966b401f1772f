"""Functions, classes and settings of torch and of installed packages, under the names by which a step finds them."""

from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from torch import Tensor

from lowtide.watching.holders import Holder
from lowtide.watching.values import MISSING, PLAIN, Copies

CODE = (FunctionType, BuiltinFunctionType, type, ModuleType)


class Names(Holder):
    """Names in a module or a class that is not the user's: what stands there when the trace is over is what counts.

    A trace puts its own functions into some of torch's places, so nothing is noted or put back while it runs.
    """

    def now(self) -> Mapping[Any, Any]:
        held: Mapping[Any, Any] = self.owner if isinstance(self.owner, dict) else vars(self.owner)
        return held

    def copied(self) -> dict[Any, Any]:
        return {}

    def note_all(self) -> None:
        """The trace is over, and everything is put back."""
        now = self.now()
        self.before = {name: now.get(name, MISSING) for name in self.read}

    def changed(self, copies: Copies, known: Mapping[int, Any] | None = None) -> list[Any]:  # type: ignore[override]
        return []

    def put(self, key: Any, value: Any) -> None:
        raise AssertionError("a trace does not change a library")

    @property
    def writable(self) -> bool:
        return False

    def restore(self) -> None:
        """Nothing to put back."""


def may_be_set(value: Any) -> bool:
    """Is it what people put something else in the place of? All else in a library's globals is its own affair."""
    return isinstance(value, (*CODE, *PLAIN))


OPERATORS = tuple(name for name in dir(Tensor) if name.startswith("__") and callable(getattr(Tensor, name)))
"""What a line of arithmetic calls without naming it."""

_ALWAYS = ("__getattribute__", "__call__")


def unnamed_methods(cls: type) -> set[str]:
    """Methods of `cls` that Python calls by syntax: `cfg["a"]`, `scale(x)`, a missing attribute."""
    return {
        name
        for c in cls.__mro__
        for name, value in vars(c).items()
        if isinstance(value, FunctionType) and name.startswith("__") and name.endswith("__")
    }.union(_ALWAYS)
