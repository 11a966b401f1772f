"""A graph whose shapes vary: each size that comes is compiled as a graph of its own, with its own plan."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
VALUES = 8
"""So many values of the floats are compiled for the same sizes; then they are taken for ones that always change."""


def vary(module: fx.GraphModule, examples: Sequence[Any]) -> bool:
    """Has dynamo left a size or a float open? Or one that its own trace then fixed: the tensors that it traced with are
    still of open sizes."""
    traced = [node.meta.get("example_value") for node in _inputs(module)]
    if any(isinstance(x, Tensor) and x._has_symbolic_sizes_strides for x in traced):
        return True
    sizes = [size for x in examples for size in ((*x.shape, *x.stride()) if isinstance(x, Tensor) else (x,))]
    return any(isinstance(size, torch.SymInt) for size in sizes) or any(map(_is_float, _inputs(module)))


class BySize:
    """What dynamo calls with tensors of any size that it has left open; it holds what was compiled for each of them."""

    def __init__(self, module: fx.GraphModule, compile_: Compile, give_up: Callable[[Tensor, str], None]) -> None:
        self._module = module
        self._inputs = _inputs(module)
        self._compile = compile_
        self._give_up = give_up
        self._compiled: dict[tuple[Any, ...], dict[tuple[Any, ...], Callable[..., Any]]] = {}

    def __call__(self, *args: Any) -> Any:
        """Run what was compiled for these sizes and numbers."""
        numbers = {
            node: x.item() if isinstance(x, Tensor) else x
            for node, x in zip(self._inputs, args, strict=True)
            if _is_float(node) or not isinstance(x, Tensor)
        }
        tensors = [x for node, x in zip(self._inputs, args, strict=True) if node not in numbers]
        sizes = (*((x.shape, x.stride()) for x in tensors), *(x for x in numbers.values() if isinstance(x, int)))
        known, values = self._compiled.setdefault(sizes, {}), tuple(numbers.values())
        if values not in known:
            if len(known) == VALUES:
                self._give_up(
                    tensors[0], "a float that its forward reads is another one at each call: keep it a tensor"
                )
                return self._module(*args)
            known[values] = self._compile(fixed(self._module, numbers), tensors)
        return known[values](*tensors)


def fixed(module: fx.GraphModule, numbers: dict[fx.Node, Any]) -> fx.GraphModule:
    """`module` with `numbers` in the place of inputs."""
    graph = fx.Graph()
    known: dict[fx.Node, Any] = dict(numbers)
    for node in module.graph.nodes:
        if node.op == "output":
            graph.output(fx.node.map_arg(node.args[0], lambda x: known[x]))
        elif node.target == "item" and node.args[0] in numbers:
            known[node] = numbers[node.args[0]]
        elif node not in known:
            known[node] = graph.node_copy(node, lambda x: known[x])
    return fx.GraphModule(module, graph)


def _inputs(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _is_float(node: fx.Node) -> bool:
    """Dynamo passes a float that it leaves open as a tensor, of which the graph takes the number."""
    return bool(node.users) and all(user.op == "call_method" and user.target == "item" for user in node.users)
