"""What a step changes before its first update, kept aside: a copy that fails on its way out leaves nothing changed."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lowtide.device.swap.space import bytes_of
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.replay import generator_bytes, generator_of


def changed_buffers(graph: StepGraph) -> list[Tensor]:
    """The user's tensors that ops other than updates change, such as running statistics."""
    return _changed(graph, graph.residents)


def _changed(graph: StepGraph, inputs: Sequence[Tensor], skip: int = 0) -> list[Tensor]:
    changed = {s for op in graph.ops if op.is_effect and not op.is_update for s in op.writes if s not in op.makes}
    names = {graph.storages[s].name for s in changed if graph.storages[s].resident}
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"][skip:]
    return [t for node, t in zip(nodes, inputs, strict=False) if node.meta["lowtide_name"] in names]


def undo_bytes(graph: StepGraph) -> int:
    """Device bytes that an Undo of this step holds."""
    return sum(tensor.nbytes for tensor in changed_buffers(graph)) + generator_bytes(graph.device)


class Undo:
    """Buffers and random generator as they were before a step; outside of torch's memory unless the plan has room.

    A step may overwrite its batch too, as an in-place op at the start of a model does.
    """

    def __init__(self, graph: StepGraph, batch: Any, *, on_device: bool) -> None:
        self._generator = generator_of(graph.device)
        given = graph.form.own_tensors(batch)
        self._batch = [(x, x.detach().clone()) for x in _changed(graph, given, skip=len(graph.residents))]
        self._buffers = [bytes_of(buffer) for buffer in changed_buffers(graph)]
        self._before: list[Any] = [data.clone() if on_device else data.cpu().numpy().copy() for data in self._buffers]
        state = self._generator.get_state()
        self._state: Any = state if on_device else state.numpy().copy()

    def __call__(self) -> None:
        """Put all of it back."""
        with torch.no_grad():
            for data, before in zip(self._buffers, self._before, strict=True):
                data.copy_(torch.as_tensor(before))
            for x, was in self._batch:
                x.copy_(was)
        self._generator.set_state(torch.as_tensor(self._state))
