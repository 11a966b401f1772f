"""The user's own model: a function of the batch size in a file or in a module."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from lowtide.errors import InputError, shortened, shown
from lowtide.models.training import Training

_RETURNS = "it must return (model, batch) or (model, batch, loss)"


def load_user_function(text: str) -> Callable[..., Any]:
    """The function that `path/to/file.py:function` or `package.module:function` names."""
    where, _, name = text.rpartition(":")
    if not where or not name:
        raise InputError(f"{shown(text)} names no function: write path/to/file.py:function or package.module:function")
    module = _from_file(Path(where)) if where.endswith(".py") or "/" in where else _from_module(where)
    function = getattr(module, name, None)
    if function is None:
        raise InputError(f"{where} has no function {name!r}")
    if not callable(function):
        raise InputError(f"{name!r} in {where} is no function but {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def call_user_function(text: str, function: Callable[..., Any], batch_size: int) -> Training:
    """Call the user's function and check what it returns."""
    try:
        inspect.signature(function).bind(batch_size)
    except TypeError as error:
        raise InputError(f"{text} must be a function of the batch size alone: {error}") from error
    try:
        made = function(batch_size)
    except Exception as error:
        raise InputError(f"{text} failed{_place(error)}: {_said(error)}") from error
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        found = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise InputError(f"{text} returned {found}: {_RETURNS}")
    model, batch, *rest = made
    if not isinstance(model, nn.Module):
        raise InputError(f"{text} returned {type(model).__name__} as the model, no torch.nn.Module: {_RETURNS}")
    loss = rest[0] if rest else None
    if loss is not None and not callable(loss):
        raise InputError(f"{text} returned {type(loss).__name__} as the loss, no function of (model, batch)")
    return Training(text.rpartition("/")[2], model, batch, loss)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"lowtide_user_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    _importable(path.resolve().parent)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} cannot be imported{_place(error)}: {_said(error)}") from error
    return module


def _from_module(name: str) -> ModuleType:
    _importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise InputError(f"module {name} cannot be imported{_place(error)}: {_said(error)}") from error


def _importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _place(error: BaseException) -> str:
    """` at file:line` of the innermost frame outside of installed packages; empty where there is none."""
    if isinstance(error, SyntaxError):
        return f" at {error.filename}:{error.lineno}"
    found, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file != __file__ and not file.startswith("<") and "site-packages" not in file and "/lib/python" not in file:
            found = f" at {_shown(Path(file))}:{step.tb_lineno}"
        step = step.tb_next
    return found


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _said(error: BaseException) -> str:
    text = shortened(" ".join(str(error.msg if isinstance(error, SyntaxError) else error).split()), 500)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
