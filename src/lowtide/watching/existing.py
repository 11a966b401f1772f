"""Which objects were there before a trace: asked at every call that a trace makes, of a million objects."""

import ctypes
import gc
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from types import CodeType, FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    Generator = GeneratorType[Any, Any, Any]
else:
    Generator = GeneratorType

_SLOTS = 1 << 22
_ITEMS = 24
"""Where in a list of CPython the pointer to its items lies, behind count, type and size."""
_KNOWN_LAYOUT = list.__basicsize__ == 40 and object.__basicsize__ == 16


def addresses(objects: list[Any]) -> NDArray[np.int64]:
    """The id of each. In CPython these are the pointers that a list consists of: copied at once, where asking a million
    objects one by one takes longer than most captures."""
    if not objects or not _KNOWN_LAYOUT:
        return np.fromiter(map(id, objects), np.int64, len(objects))
    items = ctypes.c_int64.from_address(id(objects) + _ITEMS).value
    return np.ctypeslib.as_array((ctypes.c_int64 * len(objects)).from_address(items)).copy()


class Existing:
    """All that Python's collector knows, kept alive so that no id is given out again."""

    def __init__(self) -> None:
        self._objects = _all_objects()
        ids = addresses(self._objects)
        kinds = addresses(list(map(type, self._objects)))
        self._functions = [self._objects[place] for place in np.flatnonzero(kinds == id(FunctionType))]
        self._generators = [self._objects[place] for place in np.flatnonzero(kinds == id(GeneratorType))]
        codes = addresses(list(map(attrgetter("__code__"), self._functions)))
        self._order = np.argsort(codes, kind="stable")
        self._codes = array("q", codes[self._order].tobytes())
        # Most that a trace asks for is new: a table of bytes says so at once, and the sorted ids have the last word.
        slots = np.zeros(_SLOTS, np.uint8)
        slots[_slot(ids)] = 1
        self._slots = slots.tobytes()
        self._ids = array("q", np.sort(ids).tobytes())

    def __contains__(self, value: object) -> bool:
        wanted = id(value)
        if not self._slots[_slot(wanted)]:
            return False
        place = bisect_left(self._ids, wanted)
        return place < len(self._ids) and self._ids[place] == wanted

    def functions_of(self, code: CodeType) -> Iterator[FunctionType]:
        """All that run `code`."""
        place = bisect_left(self._codes, id(code))
        while place < len(self._codes) and self._codes[place] == id(code):
            yield self._functions[self._order[place]]
            place += 1

    def waiting(self) -> dict[int, Generator]:
        """The generators that have not come to their end, by the identity of their frames."""
        return {id(x.gi_frame): x for x in self._generators if x.gi_frame is not None and not x.gi_running}


def _slot(address: Any) -> Any:
    """Objects lie at multiples of sixteen."""
    return (address >> 4) & (_SLOTS - 1)


def _all_objects() -> list[Any]:
    """What the user has frozen (gc.freeze) the collector does not list by itself."""
    frozen = gc.get_freeze_count() > 0
    if frozen:
        gc.unfreeze()
    found = gc.get_objects()
    if frozen:
        gc.freeze()
    return found
