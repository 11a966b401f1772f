"""Profiling trains for real, then puts everything back: parameters, buffers, optimizer, gradients, generators.

What is put aside goes to an unlinked file for CPU tensors and to host memory for others, so that profiling needs no
more device memory than the step itself.
"""

import ctypes
import tempfile
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lowtide.device.swap.space import bytes_of
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.replay import generator_of
from lowtide.kernels.shards import local
from lowtide.optimizer.torch_optimizers import step_hooks

_DICTS = (dict, OrderedDict, defaultdict)
_LISTS = (list, deque)


@contextmanager
def untouched(graph: StepGraph, batch: Sequence[Tensor]) -> Iterator[None]:
    """Run the block, then restore bit for bit what a step changes; some overwrite their `batch`."""
    aside = PutAside(graph, batch)
    try:
        with _without_hooks(graph.optimizer):
            for parameter in aside.leaves:
                parameter.grad = None
            try:
                yield
            finally:
                aside.put_back()
    finally:
        aside.close()


class PutAside:
    """What a step changes, as it is now: parameters, buffers, optimizer, gradients, generators, the batch."""

    def __init__(self, graph: StepGraph, batch: Sequence[Tensor]) -> None:
        gradients = [p.grad for p in graph.residents if p.is_leaf and p.grad is not None]
        self._held = _Held([graph.optimizer, *graph.residents, *batch, *gradients])
        self.leaves = [tensor for tensor in self._held.tensors if tensor.is_leaf]
        self._gradients = [(p, p.grad) for p in self.leaves]
        there = [local(t) for t in self._held.tensors if t.layout is torch.strided]
        storages = {t.untyped_storage()._cdata: bytes_of(t) for t in there}
        self._storages = list(storages.values())
        devices = {torch.device("cpu"), graph.device}
        self._random = [(generator, generator.get_state()) for generator in map(generator_of, devices)]
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._saved = [_put_aside(data, self._file) for data in self._storages]

    def put_back(self) -> None:
        """All of it, bit for bit."""
        self._file.seek(0)
        for data, host in zip(self._storages, self._saved, strict=True):
            _bring_back(data, host, self._file)
        self._held.put_back()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        for generator, state in self._random:
            generator.set_state(state)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()


class _Held:
    """Everything that an optimizer can reach through containers, modules and other optimizers, as it is now.

    Some hold averages, counters or another optimizer as attributes, outside of `state`. What else they refer to, such
    as a trainer, is not theirs.
    """

    def __init__(self, start: Iterable[object]) -> None:
        self.tensors: list[Tensor] = []
        self._contents: list[tuple[Any, Any]] = []
        self._generators: list[tuple[torch.Generator, Tensor]] = []
        seen: dict[int, object] = {}
        stack = list(start)
        while stack:
            thing = stack.pop()
            if id(thing) not in seen:
                seen[id(thing)] = thing
                stack.extend(self._enter(thing))

    def _enter(self, thing: Any) -> Iterable[object]:
        """Note what `thing` holds; returns it."""
        kind = type(thing)
        if isinstance(thing, Tensor):
            self.tensors.append(thing)
        elif isinstance(thing, torch.Generator):
            self._generators.append((thing, thing.get_state()))
        elif isinstance(thing, Optimizer | nn.Module):
            return [vars(thing)]
        elif kind in _DICTS:
            self._contents.append((thing, dict(thing)))
            return [*thing.keys(), *thing.values()]
        elif kind in _LISTS or kind is set:
            self._contents.append((thing, list(thing)))
            return list(thing)
        elif isinstance(thing, tuple):
            return thing
        return ()

    def put_back(self) -> None:
        """All but the tensors' bytes."""
        for container, content in self._contents:
            container.clear()
            container.update(content) if isinstance(container, dict | set) else container.extend(content)
        for generator, state in self._generators:
            generator.set_state(state)


@contextmanager
def _without_hooks(optimizer: Optimizer | None) -> Iterator[None]:
    """The optimizer's hooks are the user's code: they see the steps of training, not those of measuring."""
    hooks = [] if optimizer is None else step_hooks(optimizer)
    registered = [dict(table) for table in hooks]
    for table in hooks:
        table.clear()
    try:
        yield
    finally:
        for table, entries in zip(hooks, registered, strict=True):
            table.update(entries)


def _put_aside(data: Tensor, file: IO[Any]) -> Tensor | None:
    if data.device.type != "cpu":
        return data.cpu()
    file.write(_memory(data))
    return None


def _bring_back(data: Tensor, host: Tensor | None, file: IO[Any]) -> None:
    if host is not None:
        data.copy_(host)
    elif data.numel():
        file.readinto(_memory(data))  # type: ignore[attr-defined]


def _memory(data: Tensor) -> Any:
    """The bytes where they lie. Once numpy has seen a storage, torch lets nobody change its size, as FSDP2 does."""
    return (ctypes.c_char * data.nbytes).from_address(data.data_ptr())
