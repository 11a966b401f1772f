"""What a step changes before its first update, kept aside: a copy that fails on its way out leaves nothing changed."""

import torch
from torch import Tensor

from lowtide.graph.replay import generator_bytes, generator_of
from lowtide.graph.step_graph import StepGraph


def changed_buffers(graph: StepGraph) -> list[Tensor]:
    """The user's tensors that ops other than updates change, such as running statistics."""
    changed = {s for op in graph.ops if op.is_effect and not op.is_update for s in op.writes if s not in op.makes}
    names = {graph.storages[s].name for s in changed if graph.storages[s].resident}
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [t for node, t in zip(inputs, graph.residents, strict=False) if node.meta["lowtide_name"] in names]


def undo_bytes(graph: StepGraph) -> int:
    """Device bytes that an Undo of this step holds."""
    return sum(tensor.nbytes for tensor in changed_buffers(graph)) + generator_bytes(graph.device)


class Undo:
    """Buffers and random generator as they were before a step."""

    def __init__(self, graph: StepGraph) -> None:
        self._buffers = changed_buffers(graph)
        self._generator = generator_of(graph.device)
        with torch.no_grad():
            self._before = [buffer.clone() for buffer in self._buffers]
        self._state = self._generator.get_state()

    def __call__(self) -> None:
        """Put all of it back."""
        with torch.no_grad():
            for buffer, before in zip(self._buffers, self._before, strict=True):
                buffer.copy_(before)
        self._generator.set_state(self._state)
