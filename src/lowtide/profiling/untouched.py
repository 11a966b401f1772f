"""Profiling trains for real, then puts everything back: parameters, buffers, optimizer, gradients, generators.

What is put aside goes to an unlinked file for CPU tensors and to host memory for others, so that profiling needs no
more device memory than the step itself.
"""

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lowtide.device.swap.space import bytes_of
from lowtide.graph.step_graph import StepGraph
from lowtide.graph.torch_optimizers import step_hooks

_PLAIN = (int, float, bool, str, type(None))


@contextmanager
def untouched(graph: StepGraph) -> Iterator[None]:
    """Run the block, then restore bit for bit what a step changes."""
    optimizer = graph.optimizer
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [(p, p.grad) for p in {id(p): p for p in (*graph.residents, *parameters)}.values() if p.is_leaf]
    state = {p: dict(values) for p, values in optimizer.state.items()}
    groups = [{k: copy.copy(v) for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    plain = {p: {k: copy.deepcopy(v) for k, v in s.items() if not isinstance(v, Tensor)} for p, s in state.items()}
    tensors = [*graph.residents, *(v for s in state.values() for v in s.values() if isinstance(v, Tensor))]
    storages = {t.untyped_storage()._cdata: bytes_of(t) for t in tensors}
    attributes = {k: v for k, v in vars(optimizer).items() if isinstance(v, _PLAIN)}
    devices = [graph.device] if graph.device.type == "cuda" else []
    with tempfile.TemporaryFile() as file, torch.random.fork_rng(devices=devices), _without_hooks(optimizer):
        saved = [_put_aside(data, file) for data in storages.values()]
        for parameter, _ in gradients:
            parameter.grad = None
        try:
            yield
        finally:
            file.seek(0)
            for data, host in zip(storages.values(), saved, strict=True):
                _bring_back(data, host, file)
            vars(optimizer).update(attributes)
            optimizer.state.clear()
            for parameter, values in state.items():
                optimizer.state[parameter] = values | plain[parameter]
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                group.update(values)
            for parameter, gradient in gradients:
                parameter.grad = gradient


@contextmanager
def _without_hooks(optimizer: Optimizer) -> Iterator[None]:
    """The optimizer's hooks are the user's code: they see the steps of training, not those of measuring."""
    hooks = step_hooks(optimizer)
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
    file.write(data.numpy().data)
    return None


def _bring_back(data: Tensor, host: Tensor | None, file: IO[Any]) -> None:
    if host is not None:
        data.copy_(host)
    elif data.numel():
        file.readinto(data.numpy().data)  # type: ignore[attr-defined]
