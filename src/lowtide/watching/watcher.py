"""Sees which Python code a trace runs, and so which values of the user's it may have read and changed."""

import builtins
import functools
import gc
import inspect
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from lowtide.watching.caches import Caches, Kept
from lowtide.watching.code import CodeFacts, facts_of, is_library
from lowtide.watching.existing import Existing, Generator
from lowtide.watching.holders import (
    RANDOM,
    Attributes,
    ClassAttributes,
    Container,
    Globals,
    Holder,
    Position,
    RandomSource,
    TensorForm,
    holder_of,
)
from lowtide.watching.names import CODE, OPERATORS, Names, may_be_set, unnamed_methods
from lowtide.watching.outside import EVERYTHING, asker_of, asks_outside, read_whole, seeds, writes
from lowtide.watching.values import CONTAINERS, MISSING, PLAIN, Copies, described, same, shallow

log = logging.getLogger(__name__)

MOST = 200_000
"""Places that are watched; a program that reaches more is told so."""
_STRUCTURE = ("training", "_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PASSED_OVER = (logging.Logger, functools.cached_property, property, staticmethod, classmethod)
_DATA = {"collections", "types", "argparse", "configparser", "multiprocessing"}
"""Python's modules whose classes hold data and read it by methods of their own, which are not looked at."""
_SHORT = 64
"""Of what a call is given, such as a batch or `**kwargs`, so many parts are looked at."""
_WITH_MORE = (*PLAIN, *CONTAINERS, Tensor, FunctionType)
"""Kinds that are what they hold, and may have attributes beside it."""
_NO_NAMES = CodeFacts((), False, (), False, (), True, True)


@dataclass(frozen=True, slots=True)
class Effect:
    """A change that a forward or backward made in Python."""

    holder: Holder
    key: Any
    before: Any
    after: Any

    @property
    def name(self) -> str:
        """How a person would write it."""
        return self.holder.name(self.key)

    @property
    def random(self) -> bool:
        """Were numbers drawn from a generator that is not torch's own?"""
        return isinstance(self.holder, RandomSource)

    @property
    def moves_on(self) -> bool:
        """Is it the state of something that gives another value each time?"""
        return isinstance(self.holder, RandomSource | Position)

    @property
    def keeps_tensor(self) -> bool:
        """Was a tensor of the step kept?"""
        return any(isinstance(x, FakeTensor) for x in pytree.tree_leaves(self.after))

    @property
    def is_plain(self) -> bool:
        """Is it a plain value in a place that can be written to?"""
        return isinstance(self.after, PLAIN) and self.holder.writable and self.key != "contents"

    def __str__(self) -> str:
        if self.keeps_tensor:
            return f"{self.name} (a tensor of the step is kept in it)"
        if isinstance(self.holder, Position):
            return self.name
        return f"{self.name} (from {described(self.before)} to {described(self.after)})"


@contextmanager
def profiler_waits() -> Iterator[None]:
    """The user's own profiler sees nothing of a trace, which needs Python's only hook for itself."""
    before: Any = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:
            before.enable()  # cProfile's, which is no function


@contextmanager
def collector_waits() -> Iterator[None]:
    """The garbage collector waits; its callbacks are not part of a step."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Watcher:
    """Watches from before a trace until after it. Everything that it has seen is put back by `restore`."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any]) -> None:
        self.holders: dict[int, Holder] = {}
        self.copies: Copies = {}
        self.printed: str = ""
        """Where the user's code printed something, or opened or wrote a file."""
        self.asked: str = ""
        """Where it asked for the time, or something of the operating system."""
        self.seeded: str = ""
        """Where it set a random generator of torch's, or looked at its state."""
        # By the identity of code, because hashing code takes long; each code stays alive in its entry.
        self._facts: dict[int, tuple[CodeType, CodeFacts | None]] = {}
        self._done: set[tuple[int, int]] = set()
        self._existing = Existing()
        self._full = False
        self._names: dict[int, Names] = {}
        """What is the libraries', by the identity of the class or the module's globals."""
        self._libraries: set[int] = set()
        self.caches = Caches()
        self._generators = self._existing.waiting()
        """The user's generators that wait, by the identity of their frames."""
        for path, module in model.named_modules():
            self._structure(module, f"model.{path}" if path else "model")
        self._reach(loss, "loss", _NO_NAMES, None)

    def forget(self) -> None:
        """Let go of what only the watching needed."""
        del self._existing
        self._done, self._generators = set(), {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See what runs inside; the user's own profiler waits."""
        sys.setprofile(self._saw)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _saw(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_flags & inspect.CO_GENERATOR and id(frame) in self._generators:
                self._resumed(self._generators.pop(id(frame)))
            known = self._facts.get(id(code))
            facts = known[1] if known is not None else facts_of(code)
            if known is None:
                self._facts[id(code)] = (code, facts)
                if facts is not None:
                    self._read_globals(frame.f_globals, facts.globals, code, facts)
                    self._imported(frame.f_globals, code, facts)
                    self._read_tensors(facts)
            if facts is not None:
                self._called(frame, code, facts)
            elif (whole := read_whole(frame)) is not None and whole in self._existing:
                self._reach(whole, f"what {code.co_name}() is given", EVERYTHING, code)
        elif event == "return":
            if arg is not None and frame.f_back is not None:
                caller = frame.f_back.f_code
                facts = self._facts_of(caller)
                if facts is not None and arg in self._existing:
                    self._reach(arg, f"the result of {frame.f_code.co_qualname}()", facts, caller)
                elif facts is not None:
                    self._made(type(arg), facts, caller)
        elif event == "c_call" and not self.printed and (arg is print or writes(arg)):
            self.printed = _line(asker_of(frame) if arg is open else frame if asker_of(frame) is frame else None)
        elif event == "c_call" and not self.asked and asks_outside(arg):
            self.asked = _line(asker_of(frame))
        elif event == "c_call" and not self.seeded and seeds(arg):
            self.seeded = _line(asker_of(frame))

    def _facts_of(self, code: CodeType) -> CodeFacts | None:
        """Of code that was seen to be called."""
        return self._facts.get(id(code), (code, None))[1]

    def _resumed(self, generator: Generator) -> None:
        """A generator from before the trace is about to move on."""
        if facts_of(generator.gi_code) is not None:
            holder = self._hold(generator, f"the generator {generator.gi_code.co_qualname}")
            if isinstance(holder, Position):
                holder.moved = True

    def _called(self, frame: FrameType, code: CodeType, facts: CodeFacts) -> None:
        values = frame.f_locals
        rest = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        for name in (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + rest], *code.co_freevars):
            value = values.get(name)
            if value in self._existing:
                self._reach(value, f"{name} of {code.co_qualname}", facts, code)
            elif isinstance(value, dict | list | tuple):
                for part in pytree.tree_leaves(value) if len(value) < _SHORT else ():
                    if not isinstance(part, Tensor) and part in self._existing:
                        self._reach(part, f"{name} of {code.co_qualname}", facts, code)
            elif value is not None:
                self._made(getattr(type(value), "_forward_cls", type(value)), facts, code)
        if facts.library and not code.co_freevars:
            return
        for function in self._existing.functions_of(code):
            cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
            if all(_contents(cell) is values.get(name, MISSING) for name, cell in cells.items()):
                for name, cell in cells.items():
                    self._cell(cell, f"the variable {name!r} around {code.co_qualname}", facts, code)
                self._defaults(function, facts, code)

    def _read_globals(
        self, scope: dict[str, Any], names: Sequence[str], code: CodeType | None, facts: CodeFacts
    ) -> None:
        library = facts.library or is_library(scope.get("__name__"))
        held: Globals | None = None
        for name in names:
            value = scope.get(name, MISSING)
            if name.startswith("__") or (value is MISSING and (library or hasattr(builtins, name))):
                continue
            if library and may_be_set(value) and (isinstance(value, CODE) or not facts.torch):
                self._name(scope, name, scope.get("__name__", "globals"))
                if isinstance(value, ModuleType) or (isinstance(value, type) and not facts.library):
                    self._reach(value, name, facts, code)
            elif not library or not (facts.torch or is_library(scope.get("__name__"))):
                if held is None:
                    held = self._globals(scope, facts)
                held.note(name)
                self._reach(value, held.name(name), facts, code)

    def _globals(self, scope: dict[str, Any], facts: CodeFacts) -> Globals:
        found = self.holders.get(id(scope))
        held = found if isinstance(found, Globals) else Globals(scope, scope.get("__name__", "globals"))
        self.holders[id(scope)] = held
        if facts.library:
            self._libraries.add(id(scope))
        return held

    def _name(self, owner: Any, name: str, path: str) -> None:
        """A step finds something of a library's under `name` in `owner`."""
        held = self._names.get(id(owner))
        if held is None:
            held = self._names[id(owner)] = Names(owner, path)
        held.reads(name)

    def _read_tensors(self, facts: CodeFacts) -> None:
        """The user's code calls methods of tensors."""
        if not facts.library:
            for name in (*facts.names, *OPERATORS):
                if hasattr(Tensor, name):
                    self._name(Tensor, name, "torch.Tensor")

    def _imported(self, scope: dict[str, Any], code: CodeType, facts: CodeFacts) -> None:
        """What statements inside of `code` import, where that is there already."""
        if facts.library:
            return
        for name in facts.imports:
            package = scope.get("__package__") or ""
            around = [package.rsplit(".", k)[0] for k in range(package.count(".") + 1)] if package else []
            for found in (name, *(f"{outer}.{name}".rstrip(".") for outer in around)):
                if found in sys.modules:
                    self._reach(sys.modules[found], found, facts, code)

    def _cell(self, cell: CellType, path: str, facts: CodeFacts, code: CodeType | None) -> None:
        holder = self._hold(cell, path)
        if holder is not None:
            holder.reads("")
        self._reach(_contents(cell), path, facts, code)

    def _defaults(self, function: FunctionType, facts: CodeFacts, code: CodeType | None) -> None:
        if not facts.library:
            holder = self._hold(function, function.__qualname__)
            assert holder is not None or self._full
            if holder is not None:
                holder.read.update(holder.before)
        for part in (function.__defaults__, function.__kwdefaults__):
            self._reach(part, f"the defaults of {function.__qualname__}", facts, code)

    def _hold(self, owner: Any, path: str) -> Holder | None:
        holder = self.holders.get(id(owner))
        if holder is None and len(self.holders) < MOST:
            holder = holder_of(owner, path)
            if holder is not None:
                self.holders[id(owner)] = holder
                if isinstance(holder, Container):
                    self.copies[id(owner)] = holder.copy
        elif holder is None and not self._full:
            self._full = True
            log.warning("the step reaches more than %d Python objects: not all of them are watched for changes", MOST)
        return holder

    def _structure(self, module: nn.Module, path: str) -> None:
        """What a trace depends on in every module of the model, whoever reads it."""
        holder = self._hold(module, path)
        assert holder is not None
        for name in (*_STRUCTURE, *_HOOKS):
            holder.reads(name)
            held = module.__dict__.get(name)
            if isinstance(held, CONTAINERS):
                self._hold(held, f"{path}.{name}")
                for key, value in held.items() if isinstance(held, dict) else ():
                    if isinstance(value, Tensor):
                        self._hold(value, f"{path}.{key}")
                        if plain := plain_attributes(value):
                            self.holders.setdefault(~id(value), Attributes(value, f"{path}.{key}")).read.update(plain)

    def _reach(self, value: Any, path: str, facts: CodeFacts, code: CodeType | None) -> None:
        """`code` may read `value` and, by the names in it, what hangs on it."""
        if value is MISSING or isinstance(value, _PASSED_OVER) or (isinstance(value, PLAIN) and not _is_own(value)):
            return
        key = (id(value), id(code))
        if key in self._done:
            return
        self._done.add(key)
        if isinstance(value, _WITH_MORE) and not facts.library and hasattr(value, "__dict__"):
            self._more(value, path, facts, code)
        if isinstance(value, PLAIN):
            return
        if isinstance(value, MethodType | BuiltinFunctionType | MethodWrapperType):
            if not isinstance(value.__self__, ModuleType):  # as that of a builtin function is
                self._reach(value.__self__, path, facts, code)
        elif isinstance(value, FunctionType):
            # What it reads is seen when it runs, but what surrounds a function that is handed over is there now.
            if code is None:
                for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                    self._cell(cell, f"the variable {name!r} around {value.__qualname__}", facts, code)
        elif isinstance(value, functools._lru_cache_wrapper):
            self.caches.note(value, own=not facts.library)
            if not facts.library:
                self._names.setdefault(id(value), Kept(value, f"what {value.__name__}() keeps")).reads("misses")
        elif isinstance(value, np.ndarray) and value.dtype.hasobject:
            self._hold(value, path)
            for element in value.flat:
                self._reach(element, f"{path}[...]", facts, code)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._reach(part, path, facts, code)
        elif value is os.environ:
            self._reach(vars(value)["_data"], "os.environ", facts, code)
        elif isinstance(value, weakref.ref):
            self._reach(value(), path, facts, code)
        elif isinstance(value, MappingProxyType):
            for held in gc.get_referents(value):
                self._reach(held, path, facts, code)
        elif isinstance(value, ModuleType):
            self._read_globals(vars(value), facts.names, code, facts)
        elif isinstance(value, type):
            self._class(value, facts, code, facts.names)
            if type(value) is not type:
                self._class(type(value), facts, code, facts.names)
        elif isinstance(value, CONTAINERS):
            holder = self._hold(value, path)
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for k, element in list(pairs):
                if not isinstance(element, PLAIN):
                    self._reach(element, f"{holder.path if holder else path}[{k!r}]", facts, code)
        else:
            self._instance(value, path, facts, code)

    def _instance(self, value: Any, path: str, facts: CodeFacts, code: CodeType | None) -> None:
        holder = self._hold(value, path)
        if holder is None or isinstance(value, (Tensor, *RANDOM)) or isinstance(holder, Position):
            return
        if isinstance(holder, Attributes) and not is_library(type(value).__module__):
            holder.reads("__class__")  # which it is, if nothing else
        held = holder.now()
        everything = facts.dynamic or type(value).__module__.partition(".")[0] in _DATA
        names = {*facts.names, *held} if everything else facts.names
        module = isinstance(value, nn.Module)
        for name in names:
            if name in held:
                holder.reads(name)
                self._reach(held[name], f"{holder.path}.{name}", facts, code)
            elif self._class(type(value), facts, code, (name,)):
                holder.reads(name)
            elif module and (inner := _registered(value, name)) is not None:
                self._reach(inner, f"{holder.path}.{name}", facts, code)
            elif facts.asks:
                holder.reads(name)
        if isinstance(value, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            for name, child in value.named_children():
                self._reach(child, f"{holder.path}.{name}", facts, code)

    def _more(self, value: Any, path: str, facts: CodeFacts, code: CodeType | None) -> None:
        """What hangs on a function, a tensor, a list or a number, beside what it is."""
        if isinstance(value, FakeTensor):
            return
        held = vars(value)
        names = held.keys() if facts.dynamic else [name for name in facts.names if name in held or facts.asks]
        if names and len(self.holders) < MOST:
            holder = self.holders.setdefault(~id(value), Attributes(value, path))
            for name in names:
                holder.reads(name)
                self._reach(held.get(name, MISSING), f"{path}.{name}", facts, code)

    def _made(self, cls: type, facts: CodeFacts, code: CodeType) -> None:
        """`code` may read attributes of the class of something that was made in the trace."""
        if (id(cls), id(code)) not in self._done and not is_library(cls.__module__):
            self._done.add((id(cls), id(code)))
            self._class(cls, facts, code, facts.names)

    def _class(self, cls: type, facts: CodeFacts, code: CodeType | None, names: Any) -> bool:
        """Note the attributes of a class that are called `names`; says whether there is one."""
        found = False
        if (id(cls), 0) not in self._done:
            self._done.add((id(cls), 0))
            for name in unnamed_methods(cls):
                self._class_attribute(cls, name, facts, code)
        for name in names:
            if any(name in c.__dict__ for c in cls.__mro__):
                found = True
                if not name.startswith("__"):
                    self._class_attribute(cls, name, facts, code)
        return found

    def _class_attribute(self, cls: type, name: str, facts: CodeFacts, code: CodeType | None) -> None:
        """`name` in the class that has it, and in those before it, each of which may come to have one of its own."""
        for c in cls.__mro__:
            if not is_library(c.__module__):
                holder = self._hold(c, c.__qualname__)
                if isinstance(holder, ClassAttributes):
                    holder.reads(name)
                    attribute = c.__dict__.get(name, MISSING)
                    if not isinstance(attribute, FunctionType):
                        self._reach(attribute, holder.name(name), facts, code)
            elif c.__module__.startswith("torch"):
                self._name(c, name, f"{c.__module__}.{c.__qualname__}")
            if name in c.__dict__:
                return

    def guarded(self) -> list[Holder]:
        """What the trace may have read, once everything is put back."""
        for names in self._names.values():
            names.note_all()
        return [holder for holder in (*self._names.values(), *self.holders.values()) if holder.read]

    def effects(self, known: Mapping[int, Any]) -> list[Effect]:
        """What has changed since it was first seen; `known` maps stand-ins to the tensors that they stand for."""
        found = []
        for holder in self.holders.values():
            if isinstance(holder, TensorForm) or id(holder.owner) in self._libraries:
                continue  # what a library keeps for itself in its globals is a cache
            for key in holder.changed(self.copies, known):
                before, now = holder.values_at(key)
                found.append(Effect(holder, key, before, _frozen(now)))
        return found

    def restore(self) -> None:
        """Everything that was seen, as it was before."""
        for holder in self.holders.values():
            holder.restore()
        self.caches.empty()


def plain_attributes(tensor: Tensor) -> dict[str, Any]:
    """What the user has hung on a parameter or a buffer, as far as what stands in for it in a trace has it too."""
    return {name: value for name, value in vars(tensor).items() if isinstance(value, PLAIN)}


def may_settle(effects: Sequence[Effect], of_forward: Sequence[Effect]) -> bool:
    """Can it be that these happen once and no more? Only what forward does is tried again.

    Not where tensors of a step are kept, numbers are drawn or an iterator moves on.
    """
    if not effects or any(effect.keeps_tensor or effect.moves_on for effect in effects):
        return False
    then = {(id(effect.holder), effect.key): effect.after for effect in of_forward}
    return all(same(then.get((id(x.holder), x.key), MISSING), x.after, {}) for x in effects)


def _frozen(value: Any) -> Any:
    """A value as it is now, whatever becomes of the container."""
    return shallow(value) if isinstance(value, CONTAINERS) and not isinstance(value, tuple | frozenset) else value


def _line(frame: FrameType | None) -> str:
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_own(value: Any) -> bool:
    """Is this number or string of a class of the user's, or a member of an Enum, with attributes beside it?"""
    return hasattr(value, "__dict__") and not is_library(type(value).__module__)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _registered(module: nn.Module, name: str) -> Any:
    for table in ("_parameters", "_buffers", "_modules"):
        found = module.__dict__.get(table, {}).get(name)
        if found is not None:
            return found
    return None
