"""ReLU results that backward reads for their sign alone: one bit per element is kept instead of the result.

A result cannot be made again from its sign, so this is no packing that a plan could undo, but another form of the step:
forward packs the bits right behind the ReLU, and backward reads them.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from lowtide.kernels.packing import pack_bits, sign_backward
from lowtide.kernels.strides import is_dense
from lowtide.records.vocabulary import Phase
from lowtide.tracing.recorder import ORIGIN

aten = torch.ops.aten
_LEAST = 64
"""A result of so few elements is left alone."""


def sign_relus(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The ReLUs of forward whose results backward reads only for their sign, with the ops that do."""
    readers: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        for storage in {s for argument in node.all_input_nodes for s in _storages(argument)}:
            readers.setdefault(storage, []).append(node)
    found = {}
    for node in graph.nodes:
        if node.target is not aten.relu.default or node.meta[ORIGIN].phase is not Phase.FORWARD:
            continue
        (storage,) = _storages(node)
        later = [reader for reader in readers.get(storage, []) if not _is_forward(reader)]
        if later and _can_be_packed(node) and all(_reads_the_sign(reader, node, storage) for reader in later):
            found[node] = later
    return found


def keep_signs(graph: fx.Graph) -> None:
    """Pack the signs of these ReLUs behind them and let backward read the bits; names stay as they are."""
    for relu, readers in sign_relus(graph).items():
        value = relu.meta["val"]
        with graph.inserting_after(relu):
            bits = graph.create_node("call_function", pack_bits, (relu,), name=f"signs_of_{relu.name}")
        with value.fake_mode:
            bits.meta["val"] = torch.empty(-(-value.numel() // 8), dtype=torch.uint8, device=value.device)
        bits.meta[ORIGIN] = replace(relu.meta[ORIGIN], in_place="")
        for reader in readers:
            reader.target = sign_backward
            reader.args = (reader.args[0], bits)
    graph.lint()


def _storages(node: fx.Node) -> Iterator[int]:
    for value in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, Tensor):
            yield value.untyped_storage()._cdata


def _is_forward(node: fx.Node) -> bool:
    """The graph's output is not: what it returns lives on in any case."""
    return ORIGIN in node.meta and node.meta[ORIGIN].phase is Phase.FORWARD


def _can_be_packed(relu: fx.Node) -> bool:
    value = relu.meta["val"]
    return value.numel() > _LEAST and is_dense(value) and value.untyped_storage().nbytes() == value.nbytes


def _reads_the_sign(node: fx.Node, relu: fx.Node, storage: int) -> bool:
    """Is `node` the backward of `relu`, in the same strides all through?"""
    if node.target is not aten.threshold_backward.default or node.kwargs or node.args[1:] != (relu, 0):
        return False
    gradient = node.args[0]
    assert isinstance(gradient, fx.Node)
    if storage in _storages(gradient):
        return False
    values = [x.meta["val"] for x in (relu, gradient, node)]
    return len({(x.shape, x.stride(), x.dtype) for x in values}) == 1
