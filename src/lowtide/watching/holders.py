"""Places that hold values of the user's: what they held, what they hold now, and how that is put back."""

import copy
import ctypes
import random
import types
import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sized
from contextvars import ContextVar
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lowtide.watching.values import ARRAYS, MISSING, PLAIN, Copies, same, same_contents, shallow, tensor_form


class Holder(ABC):
    """One place; `before` is what it held when it was first seen, `read` the keys that a trace may depend on."""

    def __init__(self, owner: Any, path: str) -> None:
        self.owner = owner
        self.path = path
        self.before: dict[Any, Any] = self.copied()
        self.read: set[Any] = set()

    def reads(self, key: Any) -> None:
        """A trace may depend on `key`."""
        self.read.add(key)

    @abstractmethod
    def now(self) -> Mapping[Any, Any]:
        """Key -> value, as it is."""

    def copied(self) -> dict[Any, Any]:
        """What will have been before."""
        return dict(self.now())

    @abstractmethod
    def put(self, key: Any, value: Any) -> None:
        """Set one value; MISSING takes the key away."""

    @property
    def writable(self) -> bool:
        """Can a value be put there by `put`?"""
        return True

    def expect(self, key: Any, value: Any) -> None:
        """From now on this is what was there before."""
        self.before[key] = value

    def name(self, key: Any) -> str:
        """How a person would write it."""
        return f"{self.path}.{key}"

    def values_at(self, key: Any) -> tuple[Any, Any]:
        """What was under `key` before, and what is now."""
        return self.before.get(key, MISSING), self.now().get(key, MISSING)

    def changed(self, copies: Copies, known: Mapping[int, Any] | None = None) -> Iterator[Any]:
        """The keys whose values are not what they were, whoever reads them."""
        now = self.now()
        for key in self.before.keys() | now.keys():
            if not same(self.before.get(key, MISSING), now.get(key, MISSING), copies, known):
                yield key

    def stale(self, copies: Copies) -> Any:
        """The first key that a trace depends on and that has changed; MISSING where there is none."""
        now = self.now()
        before = self.before
        for key in self.read:
            value, was = now.get(key, MISSING), before.get(key, MISSING)
            if value is not was and not same(was, value, copies):
                return key
        return MISSING

    def restore(self) -> None:
        """As it was."""
        now = self.now()
        for key in [key for key in (*self.before, *now) if self.before.get(key, MISSING) is not now.get(key, MISSING)]:
            self.put(key, self.before.get(key, MISSING))


class Attributes(Holder):
    """The attributes of an object, and its class, which can be set too."""

    def __init__(self, owner: Any, path: str) -> None:
        super().__init__(owner, path)
        self.kind = type(owner)

    def stale(self, copies: Copies) -> Any:
        return super().stale(copies) if type(self.owner) is self.kind else "__class__"

    def values_at(self, key: Any) -> tuple[Any, Any]:
        return (self.kind, type(self.owner)) if key == "__class__" else super().values_at(key)

    def now(self) -> Mapping[Any, Any]:
        held: dict[Any, Any] = self.owner.__dict__
        return held

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            self.owner.__dict__.pop(key, None)
        else:
            self.owner.__dict__[key] = value

    def restore(self) -> None:
        super().restore()
        there = [key for key, value in self.before.items() if value is not MISSING]
        if list(self.owner.__dict__) != there:  # the order is the user's too
            kept = {key: self.owner.__dict__[key] for key in there}
            self.owner.__dict__.clear()
            self.owner.__dict__.update(kept)


class Slots(Attributes):
    """The attributes of an object that keeps them in slots."""

    def now(self) -> Mapping[Any, Any]:
        names = [n for cls in type(self.owner).__mro__ for n in _slot_names(cls)]
        return {n: getattr(self.owner, n) for n in names if hasattr(self.owner, n)}

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            object.__delattr__(self.owner, key)
        else:
            object.__setattr__(self.owner, key, value)

    def restore(self) -> None:
        Holder.restore(self)


def _slot_names(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(s for s in slots if s not in ("__dict__", "__weakref__"))


class ClassAttributes(Holder):
    """The attributes of a class; only those that were read are looked at."""

    def now(self) -> Mapping[Any, Any]:
        held: Mapping[Any, Any] = vars(self.owner)
        return held

    def changed(self, copies: Copies, known: Mapping[int, Any] | None = None) -> Iterator[Any]:
        now = self.now()
        for key in self.read:
            if not same(self.before.get(key, MISSING), now.get(key, MISSING), copies, known):
                yield key

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            type.__delattr__(self.owner, key)
        else:
            type.__setattr__(self.owner, key, value)

    def restore(self) -> None:
        for key in list(self.changed({})):
            self.put(key, self.before.get(key, MISSING))


class Globals(Holder):
    """Globals of a module; only the names that were read are looked at."""

    def now(self) -> Mapping[Any, Any]:
        held: dict[Any, Any] = self.owner
        return held

    def copied(self) -> dict[Any, Any]:
        return {}

    def note(self, name: str) -> None:
        """From now on `name` is looked at."""
        if name not in self.read:
            self.read.add(name)
            self.before[name] = self.owner.get(name, MISSING)

    def changed(self, copies: Copies, known: Mapping[int, Any] | None = None) -> Iterator[Any]:
        for key in self.read:
            if not same(self.before[key], self.owner.get(key, MISSING), copies, known):
                yield key

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            self.owner.pop(key, None)
        else:
            self.owner[key] = value

    def restore(self) -> None:
        for key, value in self.before.items():
            self.put(key, value)


class Function(Holder):
    """A function of the user's: its defaults and its code can be set."""

    def now(self) -> Mapping[Any, Any]:
        return {name: getattr(self.owner, name) for name in ("__defaults__", "__kwdefaults__", "__code__")}

    def put(self, key: Any, value: Any) -> None:
        setattr(self.owner, key, value)

    @property
    def writable(self) -> bool:
        return False


class Cell(Holder):
    """A variable of a closure."""

    def now(self) -> Mapping[Any, Any]:
        try:
            return {"": self.owner.cell_contents}
        except ValueError:  # declared and not yet assigned
            return {}

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            del self.owner.cell_contents
        else:
            self.owner.cell_contents = value

    def name(self, key: Any) -> str:
        return self.path


_CONTENTS: set[Any] = {"contents"}
_NOTHING: dict[Any, Any] = {}
"""What thousands of containers share; nothing is ever added to them."""


class Container(Holder):
    """A list, dict, set or the like; everything in it counts."""

    def __init__(self, owner: Any, path: str) -> None:
        super().__init__(owner, path)
        self.copy = shallow(owner)
        self.read = _CONTENTS

    def now(self) -> Mapping[Any, Any]:
        return self.owner if isinstance(self.owner, dict) else dict(enumerate(self.owner))

    def reads(self, key: Any) -> None:
        """Whatever the key, all contents count already."""

    def copied(self) -> dict[Any, Any]:
        return _NOTHING  # `copy` has it

    @property
    def writable(self) -> bool:
        return isinstance(self.owner, dict | list)

    def expect(self, key: Any, value: Any) -> None:
        self.copy[key] = value

    def name(self, key: Any) -> str:
        return self.path if key == "contents" else f"{self.path}[{key!r}]"

    def changed(self, copies: Copies, known: Mapping[int, Any] | None = None) -> Iterator[Any]:
        if not same_contents(self.copy, self.owner, copies, known):
            yield self._first(copies, known)

    def stale(self, copies: Copies) -> Any:
        copy, owner = self.copy, self.owner
        if not copy and not owner:
            return MISSING
        if len(copy) == len(owner):
            if isinstance(copy, dict):  # in this order
                if all(map(is_, copy, owner)) and all(map(is_, copy.values(), owner.values())):
                    return MISSING
            elif isinstance(copy, list) and all(a is b for a, b in zip(copy, owner, strict=True)):
                return MISSING
        return MISSING if same_contents(copy, owner, copies) else self._first(copies, None)

    def values_at(self, key: Any) -> tuple[Any, Any]:
        if key == "contents":
            return self.copy, self.owner
        return self.copy[key], self.now().get(key, MISSING)

    def _first(self, copies: Copies, known: Mapping[int, Any] | None) -> Any:
        """The key that has changed, where just one has."""
        if isinstance(self.copy, set) or len(self.copy) != len(self.owner):
            return "contents"
        before = self.copy if isinstance(self.copy, dict) else dict(enumerate(self.copy))
        now = self.now()
        keys = [key for key, value in before.items() if not same(value, now.get(key, MISSING), copies, known)]
        return keys[0] if len(keys) == 1 else "contents"

    def put(self, key: Any, value: Any) -> None:
        self.owner[key] = value

    def restore(self) -> None:
        owner: Any = self.owner
        if isinstance(owner, dict):
            if len(owner) != len(self.copy) or any(owner.get(k, MISSING) is not v for k, v in self.copy.items()):
                base = OrderedDict if isinstance(owner, OrderedDict) else dict
                base.clear(owner)
                for key, value in self.copy.items():
                    base.__setitem__(owner, key, value)
        elif isinstance(owner, list):
            if len(owner) != len(self.copy) or any(a is not b for a, b in zip(owner, self.copy, strict=True)):
                list.__setitem__(owner, slice(None), self.copy)
        elif isinstance(owner, set):
            set.clear(owner)
            set.update(owner, self.copy)
        elif isinstance(owner, deque):
            deque.clear(owner)
            deque.extend(owner, self.copy)


class Array(Holder):
    """An array of plain numbers, numpy's or Python's: a trace copies what it holds."""

    def __init__(self, owner: Any, path: str) -> None:
        super().__init__(owner, path)
        self.read.add("")

    def now(self) -> Mapping[Any, Any]:
        return {"": self.owner}

    def copied(self) -> dict[Any, Any]:
        return {"": copy.copy(self.owner)}

    def name(self, key: Any) -> str:
        return self.path

    def put(self, key: Any, value: Any) -> None:
        self.owner[... if isinstance(self.owner, np.ndarray) else slice(None)] = value

    def restore(self) -> None:
        if not same(self.before[""], self.owner, {}):
            self.put("", self.before[""])


class Box(Holder):
    """One value behind an object of Python's own that is asked for it: a ctypes number, a context variable."""

    def __init__(self, owner: Any, path: str) -> None:
        super().__init__(owner, path)
        self.read.add("")

    def now(self) -> Mapping[Any, Any]:
        return {"": self.owner.get(MISSING) if isinstance(self.owner, ContextVar) else self.owner.value}

    def name(self, key: Any) -> str:
        return self.path

    def put(self, key: Any, value: Any) -> None:
        if isinstance(self.owner, ContextVar):
            self.owner.set(value)
        else:
            self.owner.value = value


class TensorForm(Holder):
    """A tensor of the user's: shape, strides, dtype, hooks and the like, not its values."""

    def __init__(self, owner: Tensor, path: str) -> None:
        super().__init__(owner, path)
        self.read.add("form")

    def now(self) -> Mapping[Any, Any]:
        return {"form": tensor_form(self.owner)}

    def name(self, key: Any) -> str:
        return f"shape, strides, dtype, device, requires_grad or hooks of {self.path}"

    def values_at(self, key: Any) -> tuple[Any, Any]:
        return None, None  # the name says what it is about

    def stale(self, copies: Copies) -> Any:
        return MISSING if tensor_form(self.owner) == self.before["form"] else "form"

    def put(self, key: Any, value: Any) -> None:
        raise AssertionError("a trace does not change the form of a tensor")

    def restore(self) -> None:
        """A trace works on stand-ins."""


class RandomSource(Holder):
    """A generator of random numbers that is not torch's: a step that draws from it cannot be captured."""

    def now(self) -> Mapping[Any, Any]:
        owner = self.owner
        if isinstance(owner, random.Random):
            return {"state": owner.getstate()}
        if isinstance(owner, np.random.Generator):
            return {"state": repr(owner.bit_generator.state)}
        state = owner.get_state()
        return {"state": state.numpy().tobytes() if isinstance(state, Tensor) else repr(state)}

    def copied(self) -> dict[Any, Any]:
        self._raw: Any = (
            self.owner.getstate()
            if isinstance(self.owner, random.Random)
            else self.owner.bit_generator.state
            if isinstance(self.owner, np.random.Generator)
            else self.owner.get_state()
        )
        return dict(self.now())

    def put(self, key: Any, value: Any) -> None:
        raise AssertionError("put back by restore")

    def restore(self) -> None:
        if isinstance(self.owner, random.Random):
            self.owner.setstate(self._raw)
        elif isinstance(self.owner, np.random.Generator):
            self.owner.bit_generator.state = self._raw
        else:
            self.owner.set_state(self._raw)


class Position(Holder):
    """How far an iterator of the user's has come: a step that moves it on cannot be captured."""

    moved = False
    """Of a generator, which cannot be asked: was it seen to run?"""

    def now(self) -> Mapping[Any, Any]:
        return {"position": (self.moved, _position(self.owner))}

    def name(self, key: Any) -> str:
        return f"the position of {self.path}"

    def put(self, key: Any, value: Any) -> None:
        raise AssertionError("put back by restore")

    def copied(self) -> dict[Any, Any]:
        self._state = _reduced(self.owner)[2:3]
        return dict(self.now())

    def restore(self) -> None:
        """Where Python can: iterators over sequences know how to be set back, others stay where they are."""
        if self._state and self._state[0] is not None:
            self.owner.__setstate__(self._state[0])


def _reduced(iterator: Any) -> tuple[Any, ...]:
    if isinstance(iterator, types.GeneratorType):
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # itertools, from Python 3.12 on
            found = iterator.__reduce__()
    except TypeError:  # one that cannot tell, such as an open file
        return ()
    return found if isinstance(found, tuple) else ()


def _position(iterator: Any) -> Any:
    """What tells two positions of an iterator apart, through the iterators inside of it."""

    def told(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(told, value))
        if isinstance(value, Iterator):
            return _position(value)
        return repr(value) if isinstance(value, PLAIN) else (id(value), len(value) if isinstance(value, Sized) else 0)

    return told(_reduced(iterator)[1:])


RANDOM = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)


_ITERATORS = ("builtins", "itertools")


def holder_of(owner: Any, path: str) -> Holder | None:
    """The holder for what `owner` holds; None where nothing in it can change or be seen."""
    if isinstance(owner, RANDOM):
        return RandomSource(owner, path)
    if isinstance(owner, Tensor):
        return TensorForm(owner, path)
    if isinstance(owner, ARRAYS):
        return Array(owner, path)
    if isinstance(owner, ContextVar | ctypes._SimpleCData):
        return Box(owner, path)
    if isinstance(owner, list | tuple | dict | set | frozenset | deque):
        return Container(owner, path)
    if isinstance(owner, types.CellType):
        return Cell(owner, path)
    if isinstance(owner, types.FunctionType):
        return Function(owner, path)
    if isinstance(owner, type):
        return ClassAttributes(owner, path)
    if isinstance(owner, types.GeneratorType) or (isinstance(owner, Iterator) and type(owner).__module__ in _ITERATORS):
        return Position(owner, path)
    if hasattr(owner, "__dict__"):
        return Attributes(owner, path)
    if any(_slot_names(cls) for cls in type(owner).__mro__):
        return Slots(owner, path)
    return None
