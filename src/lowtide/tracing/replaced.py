"""Functions of torch's in whose place the user has put others that call them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function

_TORCH = str(Path(torch.__file__).parent) + "/"
_CALLS = ("__call__", "__getattr__")


def meant(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a mode is asked for by its caller's caller.

    torch names a function by what stands in its place. If that is the user's, it runs already and has called torch's:
    it must not run twice.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_filename.startswith(_TORCH):
        return function
    asking = sys._getframe(2)
    if asking.f_code is not handle_torch_function.__code__:
        name = next((name for name, held in vars(Tensor).items() if held is function), "")
        found: Callable[..., Any] = getattr(torch._C.TensorBase, name, function)
        return found
    original = asking.f_back
    if original is None or original.f_code is function.__code__ or original.f_code.co_freevars:
        return function
    return FunctionType(original.f_code, original.f_globals)


@contextmanager
def modules_called_as(before: tuple[Any, ...]) -> Iterator[None]:
    """fx calls modules by the method that nn.Module had when torch was imported; here it is the present one."""
    of_fx = methods_of_modules()
    for name, method in zip(_CALLS, before, strict=True):
        setattr(nn.Module, name, method)
    try:
        yield
    finally:
        for name, method in zip(_CALLS, of_fx, strict=True):
            setattr(nn.Module, name, method)


def methods_of_modules() -> tuple[Any, ...]:
    """How modules are called, and asked for what they hold."""
    return tuple(vars(nn.Module)[name] for name in _CALLS)
