"""What a step changes before its first update, kept aside: a copy that fails on its way out leaves nothing changed."""

import tempfile

import torch
from torch import Tensor

from lowtide.device.swap.space import bytes_of
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.untouched import bring_back, put_aside


def changed_buffers(graph: StepGraph) -> list[Tensor]:
    """The user's tensors that ops other than updates change, such as running statistics."""
    changed = {s for op in graph.ops if op.is_effect and not op.is_update for s in op.writes if s not in op.makes}
    names = {graph.storages[s].name for s in changed if graph.storages[s].resident}
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [t for node, t in zip(inputs, graph.residents, strict=False) if node.meta["lowtide_name"] in names]


def undo_bytes(graph: StepGraph) -> int:
    """Device bytes that an Undo of this step holds."""
    return sum(tensor.nbytes for tensor in changed_buffers(graph))


class Undo:
    """Buffers and random generator as they were before a step; off the device unless the plan has room for them."""

    def __init__(self, graph: StepGraph, *, on_device: bool) -> None:
        self._buffers = changed_buffers(graph)
        self._device = graph.device
        self._copies: list[Tensor] = []
        if on_device:
            with torch.no_grad():
                self._copies = [buffer.clone() for buffer in self._buffers]
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
            self._bytes = [bytes_of(buffer) for buffer in self._buffers]
            self._aside = [put_aside(data, self._file) for data in self._bytes]
        self._on_device = on_device
        self._generator = self._state()

    def __call__(self) -> None:
        """Put all of it back."""
        with torch.no_grad():
            if self._on_device:
                for buffer, before in zip(self._buffers, self._copies, strict=True):
                    buffer.copy_(before)
            else:
                self._file.seek(0)
                for data, host in zip(self._bytes, self._aside, strict=True):
                    bring_back(data, host, self._file)
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(self._generator, self._device)
        else:
            torch.set_rng_state(self._generator)

    def _state(self) -> Tensor:
        return torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else torch.get_rng_state()
