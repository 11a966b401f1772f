"""What a step asks of Python's own library: the environment, the clock, files, all that an object holds."""

import copy
import dataclasses
import datetime
import inspect
import io
import os
import re
import time
from types import CodeType, FrameType
from typing import Any

import torch

from lowtide.watching.code import CodeFacts, facts_of, is_stdlib

_READ_WHOLE = (copy.copy, copy.deepcopy, dataclasses.asdict, dataclasses.astuple, dataclasses.replace)
_WHOLE: set[CodeType] = {f.__code__ for f in (*_READ_WHOLE, inspect.getmembers, type(os.environ).__getitem__)}
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_OF_THE_SYSTEM = ("stat", "lstat", "listdir", "scandir", "access", "getcwd", "urandom", "getpid", "getloadavg")
_ASKING = {
    id(getattr(module, name))
    for module, names in ((time, (*_CLOCKS, *(f"{x}_ns" for x in _CLOCKS), "localtime")), (os, _OF_THE_SYSTEM))
    for name in names
}
_TODAY = ("now", "utcnow", "today")
_FOR_ITSELF = ("logging/", "warnings.py", "linecache.py", "traceback.py", "inspect.py", "tokenize.py", "importlib")
"""Parts of Python's library that look at files and at the clock for their own ends."""
_READERS = re.compile("site-packages/(numpy|pandas|yaml|PIL)/|torch/(random|_compile|_dynamo/.*)[.]py")
EVERYTHING = CodeFacts((), True, (), False, (), False, False)
"""Of code that reads all attributes of what it is given."""


def read_whole(frame: FrameType) -> Any:
    """The object of which a function of Python's library reads everything, for the user's code; None where it is not
    such a function."""
    code = frame.f_code
    if code not in _WHOLE or asker_of(frame.f_back) is None:
        return None
    return frame.f_locals[code.co_varnames[0]]


def asker_of(frame: FrameType | None) -> FrameType | None:
    """The user's code that called, through Python's library or a reader of files; None where it was something else."""
    while frame is not None and (is_stdlib(frame.f_code.co_filename) or _READERS.search(frame.f_code.co_filename)):
        if any(part in frame.f_code.co_filename for part in _FOR_ITSELF):
            return None
        frame = frame.f_back
    if frame is None:
        return None
    facts = facts_of(frame.f_code)
    return None if facts is None or facts.library else frame


def asks_outside(function: Any) -> bool:
    """Is this builtin the clock, or does it ask the operating system?"""
    if id(function) in _ASKING:
        return True
    of = getattr(function, "__self__", None)
    return isinstance(of, type) and issubclass(of, datetime.date) and function.__name__ in _TODAY


def seeds(function: Any) -> bool:
    """Does this builtin set a generator of torch's, or ask for its state?"""
    return isinstance(getattr(function, "__self__", None), torch.Generator)


def writes(function: Any) -> bool:
    """Does this builtin open a file or write to one?"""
    if function is open:
        return True
    return isinstance(getattr(function, "__self__", None), io.IOBase) and function.__name__ in ("write", "writelines")
