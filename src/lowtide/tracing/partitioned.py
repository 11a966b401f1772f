"""The two halves that torch's partitioner makes of a joint graph, as one graph again.

Inductor's partitioner already recomputes what costs nothing inside of a fused kernel. What it would run is what a plan
for inductor starts from, so its halves are put together, backward with the ops that it runs again as ops of its own.
"""

from typing import Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp


def stitched(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> fx.GraphModule:
    """A joint graph whose forward and backward are just these; the first `outputs` results of `forward` are its own."""
    graph = fx.Graph()
    made: Any = next(node for node in forward.graph.nodes if node.op == "output").args[0]
    wanted: Any = next(node for node in backward.graph.nodes if node.op == "output").args[0]
    given = [node for node in backward.graph.nodes if node.op == "placeholder"]
    saved, gradients = given[: len(made) - outputs], given[len(made) - outputs :]
    first = {node: _placeholder(graph, node) for node in forward.graph.nodes if node.op == "placeholder"}
    second = {node: _placeholder(graph, node) for node in gradients}
    _copy(forward, graph, first, "is_forward")
    second |= {node: first[x] for node, x in zip(saved, made[outputs:], strict=True)}
    _copy(backward, graph, second, "is_backward")
    results = [(first, made[:outputs]), (second, wanted)]
    graph.output(tuple(known[x] if isinstance(x, fx.Node) else x for known, xs in results for x in xs))
    module = fx.GraphModule(forward, graph)
    inputs = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"]
    with torch.no_grad():  # what runs again has bytes of its own
        _Anew(module, inputs[0].fake_mode).propagate_dont_convert_inputs(*inputs)
    return module


class _Anew(FakeTensorProp):
    """Every op makes its fake tensors again."""

    def get_attr(self, *args: Any) -> Any:
        """A constant, as a fake tensor."""
        return self._mode.from_tensor(super().get_attr(*args))


def _placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    made = graph.placeholder(node.name)
    made.meta = dict(node.meta)
    return made


def _copy(half: fx.GraphModule, graph: fx.Graph, known: dict[fx.Node, fx.Node], tag: str) -> None:
    for node in half.graph.nodes:
        if node.op not in ("placeholder", "output"):
            known[node] = graph.node_copy(node, lambda x: known[x])
            known[node].meta = {**node.meta, "partitioner_tag": tag}
