"""Functions under `functools.lru_cache`: eager keeps from its first step on what a trace only seems to compute."""

import functools
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from lowtide.watching.names import Names
from lowtide.watching.values import MISSING, Copies

if TYPE_CHECKING:
    Cached = functools._lru_cache_wrapper[Any]
else:
    Cached = functools._lru_cache_wrapper


@dataclass(frozen=True, slots=True)
class Filling:
    """A call whose result eager keeps."""

    function: Cached
    key: Any
    result: Any

    @property
    def tensors(self) -> Iterator[FakeTensor]:
        """Of the trace, in what is kept."""
        return (x for x in pytree.tree_leaves(self.result) if isinstance(x, FakeTensor))

    @property
    def is_there(self) -> bool:
        """Is a result kept by now?"""
        return self.key in _table(self.function)

    def again(self) -> None:
        """Call it as it was called, so that its result is kept from now on; functools makes a key of the arguments."""
        if type(self.key) in (int, str):
            self.function(self.key)
        elif isinstance(self.key, tuple) and not self.function.cache_parameters()["typed"]:
            mark = next((k for k, x in enumerate(self.key) if type(x) is object), len(self.key))
            words = self.key[mark + 1 :]
            self.function(*self.key[:mark], **dict(zip(words[::2], words[1::2], strict=True)))


class Kept(Names):
    """What a function keeps was thrown away since (`cache_clear`), so that it is computed anew."""

    def now(self) -> Mapping[Any, Any]:
        return {"misses": self.owner.cache_info().misses}

    def stale(self, copies: Copies) -> Any:
        if self.now()["misses"] >= self.before["misses"]:
            return MISSING
        self.before["misses"] = float("inf")  # filled again, it would look as before
        return "misses"

    def name(self, key: Any) -> str:
        return self.path

    def values_at(self, key: Any) -> tuple[Any, Any]:
        return None, None  # the name says what it is about


class Caches:
    """The caches that a trace may fill, with the keys that were there before."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Cached, set[int]]] = {}
        self._own: set[int] = set()

    def note(self, function: Cached, *, own: bool) -> None:
        """The step may call `function`; what libraries keep is only taken out again."""
        if own:
            self._own.add(id(function))
        if id(function) not in self._found:
            self._found[id(function)] = function, {id(key) for key in _table(function)}

    def filled(self) -> Sequence[Filling]:
        """What the trace has put into functions of the user's own."""
        return [filling for filling in self._all() if id(filling.function) in self._own]

    def _all(self) -> Sequence[Filling]:
        return [
            Filling(function, key, result)
            for function, before in self._found.values()
            for key, result in _held(function)
            if id(key) not in before
        ]

    def empty(self) -> None:
        """Take that out again; nothing of a trace stays."""
        for filling in self._all():
            if self._found[id(filling.function)][1]:
                _table(filling.function).pop(filling.key, None)
            else:
                filling.function.cache_clear()


def _table(function: Cached) -> dict[Any, Any]:
    """Python's own dict of what is kept: the first one behind the entries."""
    size = function.cache_info().currsize
    parts = gc.get_referents(function)
    tables = [x for x in parts if type(x) is dict and x is not vars(function) and len(x) == size]
    found: dict[Any, Any] = tables[-1] if tables else {}
    return found


def _held(function: Cached) -> list[tuple[Any, Any]]:
    """Keys and results. With a bound the table holds links, and results stand behind their keys."""
    table = _table(function)
    if function.cache_info().maxsize is None:
        return list(table.items())
    parts = gc.get_referents(function)
    keys = {id(key) for key in table}
    return [(x, parts[k + 1]) for k, x in enumerate(parts[:-1]) if id(x) in keys]
