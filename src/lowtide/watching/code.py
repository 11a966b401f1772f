"""What is known about a piece of Python code that runs inside a trace: whose it is, and which names it reads."""

import dis
import itertools
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import torch

_LOWTIDE = str(Path(__file__).parent.parent) + "/"
_TORCH = str(Path(torch.__file__).parent) + "/"
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
# torch's code that works on the user's objects; the rest of it is the tracer.
_TORCH_LAYERS = tuple(_TORCH + part for part in ("nn/", "optim/", "distributions/", "autograd/function.py"))
_DYNAMIC = {"vars", "__dict__", "eval", "exec", "attrgetter", "__getattribute__", "globals"}
_ASKS = {"getattr", "hasattr"}
_DEFAULTS = ("LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")
# Names of instructions from Python 3.11 to 3.13; the last is of 3.12.
_GLOBAL_OPS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """Of one code object."""

    names: Sequence[str]
    """Attributes that it may read or set."""
    dynamic: bool
    """May it be any other attribute too, because names are made up?"""
    globals: Sequence[str]
    """Globals that it may read or set."""
    asks: bool
    """May it ask for a name that is not there?"""
    imports: Sequence[str]
    """Modules that it imports, as the statements name them: `from .a import b` says "a"."""
    library: bool
    """An installed package's, not the user's own."""
    torch: bool


def facts_of(code: CodeType) -> CodeFacts | None:
    """None where the code is not of interest: the tracer's, lowtide's own, Python's."""
    file = code.co_filename
    if file.startswith(("<lowtide", "<eval_with_key>", "<torch")):
        return None
    library = "site-packages" in file
    if is_stdlib(file):
        return None
    if file.startswith(_LOWTIDE) and not file.startswith(_LOWTIDE + "models/"):
        return None
    if file.startswith(_TORCH) and not file.startswith(_TORCH_LAYERS):
        return None
    constants = [x for x in code.co_consts if isinstance(x, str)]
    constants += [x for held in code.co_consts if isinstance(held, tuple) for x in held if isinstance(x, str)]
    names = {x for x in constants if x.isidentifier()}
    globals_ = set()
    instructions = list(dis.get_instructions(code))
    for instruction in instructions:
        if instruction.opname in _GLOBAL_OPS:
            globals_.add(instruction.argval)
        elif instruction.opcode in dis.hasname:
            names.add(instruction.argval)
    imports = {x.argval for x in instructions if x.opname == "IMPORT_NAME"}
    if "globals" in globals_ and not library:
        globals_ |= names
    matches = any(x.opname == "MATCH_CLASS" for x in instructions)  # which attributes that reads, the class says
    made_up = matches or not (names | globals_).isdisjoint(_DYNAMIC) or _asks_for_made_up_names(instructions)
    dynamic = made_up and not library
    return CodeFacts(
        tuple(sorted(names)),
        dynamic,
        tuple(sorted(globals_)),
        not globals_.isdisjoint(_ASKS) or (bool(code.co_exceptiontable) and not library),
        tuple(sorted(imports)),
        library,
        file.startswith(_TORCH),
    )


def is_stdlib(file: str) -> bool:
    """Is code in this file Python's own?"""
    return file.startswith((_STDLIB, "<frozen ")) and "site-packages" not in file


def _asks_for_made_up_names(instructions: Sequence[dis.Instruction]) -> bool:
    """Is there a `getattr` whose second argument is not simply a string?"""
    return any(
        not _second_is_constant(instructions[place + 1 :])
        for place, instruction in enumerate(instructions)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in _ASKS
    )


def _second_is_constant(instructions: Sequence[dis.Instruction]) -> bool:
    """Of a call whose arguments begin here: follows how many values stand on Python's stack."""
    depth = 0
    for place, instruction in enumerate(instructions):
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            return False
        if depth == 1 and instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, str):
            return _ends_simply(instructions[place + 1 :])
        depth += dis.stack_effect(instruction.opcode, instruction.arg)
        if depth < 1:
            return False
    return False


def _ends_simply(instructions: Sequence[dis.Instruction]) -> bool:
    """Is what follows the call itself, with at most one name or constant, the default, before it?"""
    rest = itertools.dropwhile(lambda x: x.opname in _DEFAULTS, instructions[:1])
    following = next(itertools.chain(rest, instructions[1:]), None)
    return following is not None and following.opname in ("PRECALL", "CALL", "KW_NAMES")


def is_library(module: str | None) -> bool:
    """Does a class of this module come with Python, torch or numpy?"""
    top = (module or "builtins").partition(".")[0]
    return top in _ALWAYS_THE_SAME


_ALWAYS_THE_SAME = {"builtins", "torch", "numpy", "collections", "typing", "abc", "types", "functools", "enum"}
