"""What a trace takes for granted about the world, as a value that can be compared before each step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lowtide.graph.update import is_separable

_PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)
_TABLES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_FORM = ("foreach", "fused", "capturable", "differentiable", "amsgrad", "centered")


@dataclass(frozen=True, slots=True)
class World:
    """A snapshot; `held` keeps alive what the key names by identity, so that no identity is used twice."""

    key: tuple[object, ...]
    held: tuple[object, ...]

    def change(self, now: "World") -> str:
        """In a few words, what is different."""
        for before, after in zip(self.key, now.key, strict=False):
            if before != after and isinstance(before, tuple) and isinstance(after, tuple):
                return f"{before[0]} has changed" if before[0] == after[0] else "the modules have changed"
        return "the modules have changed"


def world(model: nn.Module, optimizer: Optimizer) -> World:
    """How model, optimizer and torch are set at the moment."""
    held: list[object] = []
    key: list[object] = []
    configurations: dict[int, tuple[object, ...]] = {}
    for path, module in model.named_modules():
        key.append(_module(path, module, held, configurations))
    key.append(_optimizer(optimizer))
    key.append(
        (
            "autocast or the default dtype",
            *((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")),
            torch.get_default_dtype(),
        )
    )
    return World(tuple(key), tuple(held))


def _module(
    path: str, module: nn.Module, held: list[object], configurations: dict[int, tuple[object, ...]]
) -> tuple[object, ...]:
    """Class, mode, parameters, buffers, hooks and every plain attribute of one module."""
    entry: list[object] = [f"module {path!r}" if path else "the model", type(module)]
    for name, value in vars(module).items():
        if name in _TABLES:
            if name != "_modules":
                entry.extend(_tensor(key, x, held) for key, x in value.items() if x is not None)
        elif name in _HOOKS:
            entry.extend((name, id(hook)) for hook in value.values())
            held.extend(value.values())
        elif isinstance(value, _PLAIN):
            entry.append((name, value))
        elif not name.startswith("_"):
            entry.append((name, *_attribute(value, held, configurations)))
    return tuple(entry)


def _tensor(name: str, x: Tensor, held: list[object]) -> tuple[object, ...]:
    held.append(x)
    return (name, id(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad)


def _attribute(value: Any, held: list[object], configurations: dict[int, tuple[object, ...]]) -> Iterator[object]:
    """Containers of plain values by value, configuration objects by their plain attributes, all else by identity."""
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(x, _PLAIN) for x in value):
        yield tuple(value) if isinstance(value, list | tuple) else frozenset(value)
        return
    if isinstance(value, dict) and all(isinstance(x, _PLAIN) for pair in value.items() for x in pair):
        yield tuple(value.items())
        return
    held.append(value)
    yield id(value)
    if isinstance(value, nn.Module | Tensor) or not hasattr(value, "__dict__") or callable(value):
        return
    if id(value) not in configurations:
        configurations[id(value)] = tuple((k, v) for k, v in vars(value).items() if isinstance(v, _PLAIN))
    yield configurations[id(value)]


def _optimizer(optimizer: Optimizer) -> tuple[object, ...]:
    """What decides how updates run and which bytes they hold; learning rates and the like are read at every step."""
    return (
        "the optimizer",
        id(optimizer),
        type(optimizer),
        is_separable(optimizer),
        *(
            (tuple(map(id, group["params"])), bool(group.get("momentum")), *(group.get(name) for name in _FORM))
            for group in optimizer.param_groups
        ),
    )
