"""The executor `inductor`: torch's compiler makes the kernels of both halves of a planned graph.

Each half goes to it as a graph in the order of the plan. It has no pass that merges an op with its recomputation, and
it keeps the order where it is told to; but it fuses, so what is alive when is not quite what was planned. So the
loop compares what is measured with the budget, and plans again.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import fx, nn
from torch._dynamo.convert_frame import compile_lock
from torch._functorch import config as functorch_config
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.virtualized import V
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from lowtide.errors import InputError
from lowtide.graph.ops import Op
from lowtide.graph.program import Halves, crossing_values
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.boundary import opening
from lowtide.optimizer.update import Ledger
from lowtide.records.vocabulary import Purpose

_IN_ORDER = {"reorder_for_peak_memory": False}
"""Of inductor's settings: the order of a graph is the plan."""


NEAR = 8
"""Kernels that stand further apart than so many others are not merged for what they both read."""


class _Near(InductorChoices):
    """Merging two kernels moves one of them to the other's time. What is computed again late, or twice, stays there."""

    @staticmethod
    def can_fuse_horizontal(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
        """Only neighbours."""
        distance = max(abs(node1.min_order - node2.max_order), abs(node2.min_order - node1.max_order))
        near: bool = InductorChoices.can_fuse_horizontal(scheduler, node1, node2, shared_data_score)
        return near and distance <= NEAR


class Compiling(Protocol):
    """One graph on its way through inductor's front."""

    def partition(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **rest: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Its halves."""

    def inner(self, module: fx.GraphModule, examples: Sequence[Any], **rest: Any) -> Any:
        """What runs one of them."""


class _Partitioner(CustomPartitionerFn):
    """In place of torch's own partitioner, behind inductor's passes over the joint graph."""

    def __init__(self, compiling: Compiling) -> None:
        self._compiling = compiling

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **rest: Any) -> Any:
        rest.pop("compiler")
        return self._compiling.partition(gm, joint_inputs, **rest)

    def uuid(self) -> None:
        """Not to be cached: a plan is for what is on the device now."""


def compile_through(module: fx.GraphModule, examples: Sequence[Any], compiling: Compiling | None) -> Callable[..., Any]:
    """As inductor compiles `module`; with `compiling` both halves are the plan's."""
    compiled: Any
    if compiling is None:
        compiled = compile_fx(module, examples)
    else:
        ours = config.patch(custom_partitioner_fn=_Partitioner(compiling))
        with ours, functorch_config.patch(enable_autograd_cache=False):
            compiled = compile_fx(module, examples, inner_compile=compiling.inner)
    run: Callable[..., Any] = compiled
    return run


def need_compiler(device: torch.device) -> None:
    """One sentence where inductor cannot work on `device`."""
    if device.type == "cpu":
        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            raise InputError(
                'executor="inductor" needs a C++ compiler, and none was found: install g++, or say executor="eager"'
            ) from None


class Inductor:
    """Makes halves of inductor's kernels. A graph that no plan changes gets those of torch's own partitioner:
    just what inductor runs without lowtide."""

    def __init__(self, forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> None:
        self._own = (forward, backward)
        self._outputs = outputs

    def __call__(self, graph: StepGraph) -> Halves:
        """Of a captured graph or of one that a plan has rewritten."""
        is_rewritten = any(op.purpose is not Purpose.PROGRAM for op in graph.ops)
        return _planned(graph) if is_rewritten else self._unplanned(graph)

    def _unplanned(self, graph: StepGraph) -> Halves:
        front, back = (fx.GraphModule(half, copy.deepcopy(half.graph)) for half in self._own)
        for half, visible in ((front, self._outputs), (back, None)):
            _show(next(node for node in half.graph.nodes if node.op == "output"), visible)
        given, taken = ([n.meta["val"] for n in half.graph.nodes if n.op == "placeholder"] for half in (front, back))
        made: Any = next(node for node in front.graph.nodes if node.op == "output").args[0]
        names = tuple(node.name for node in made[self._outputs :])
        run, strides = _compiled(front, given, is_backward=False)
        later = taken[len(names) :]
        saved = _lying(taken[: len(names)], strides[self._outputs :])
        second, _ = _compiled(back, [*saved, *later], is_backward=True)
        constants = len(graph.residents)

        def first(inputs: list[Any]) -> Any:
            del inputs[:constants]
            return run(inputs)

        return _halves(first, second, self._outputs, range(len(later)), names)


def _planned(graph: StepGraph) -> Halves:
    """In the order of its ops."""
    boundary = graph.boundary
    assert boundary is not None
    returned: Any = boundary.node.args[0]
    results: Any = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    crossing = crossing_values(graph.graph, graph.ops, boundary)
    places = [int(str(item.args[1])) - 1 for item in boundary.items]
    front = _half(inputs, graph.ops[: boundary.rank], [*returned, *crossing], visible=len(returned))
    given = [node.meta["val"] for node in inputs]
    with torch.no_grad():
        made = FakeTensorProp(front, given[0].fake_mode).propagate_dont_convert_inputs(*given)
    back = _half([*crossing, *boundary.items], graph.ops[boundary.rank + 1 :], results[len(returned) :])
    with config.patch(_IN_ORDER), V.set_choices_handler(_Near()):
        first, strides = _compiled(front, given, is_backward=False)
        saved = _lying(made[len(returned) :], strides[len(returned) :])
        second, _ = _compiled(back, [*saved, *(node.meta["val"] for node in boundary.items)], is_backward=True)
    return _halves(first, second, len(returned), places, tuple(node.name for node in crossing))


def _lying(values: Sequence[Any], strides: Sequence[Any]) -> list[Any]:
    """`values` as they lie in memory: inductor decides that for those which only backward sees."""
    return [x if at is None else _restrided(x, at) for x, at in zip(values, strides, strict=True)]


def _restrided(x: Any, strides: Sequence[int]) -> Any:
    with x.fake_mode:
        return x.as_strided(x.shape, strides)


def _halves(
    first: Callable[[list[Any]], Any],
    second: Callable[[list[Any]], Any],
    outputs: int,
    places: Sequence[int],
    names: tuple[str, ...],
) -> Halves:
    """Both as the loop calls them; backward wants the gradients at `places`."""

    def forward(inputs: list[Any], ledger: Ledger) -> tuple[list[Any], list[Any]]:
        made = list(first(inputs))
        return made[:outputs], made[outputs:]

    def backward(saved: list[Any], gradients: list[Any], ledger: Ledger) -> list[Any]:
        saved += [gradients[place] for place in places]
        gradients.clear()
        return list(second(saved))

    return Halves(forward, backward, names)


def _half(
    inputs: Sequence[fx.Node], ops: Sequence[Op], results: Sequence[Any], *, visible: int | None = None
) -> fx.GraphModule:
    """`ops` in their order as a graph from `inputs` to `results`, the first or all of them `visible`."""
    graph = fx.Graph()
    known = {node: graph.placeholder(node.name) for node in inputs}
    for op in ops:
        if op.node.target is not opening:
            for node in (op.node, *op.items):
                known[node] = graph.node_copy(node, lambda x: known[x])
    _show(graph.output(tuple(known[x] if isinstance(x, fx.Node) else x for x in results)), visible)
    return fx.GraphModule(nn.Module(), graph)


def _show(output: fx.Node, visible: int | None) -> None:
    """Tell inductor which results the user sees, and so must lie as in eager."""
    results: Any = output.args[0]
    output.meta["user_visible_output_idxs"] = [k for k, x in enumerate(results[:visible]) if isinstance(x, fx.Node)]


def _compiled(
    module: fx.GraphModule, given: Sequence[Any], *, is_backward: bool
) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """What runs `module`, and the strides of what it returns."""
    with (
        compile_lock,
        tracing(TracingContext(given[0].fake_mode)),
        TracingContext.report_output_strides() as strides,
        torch._C._DisableAutocast(),
    ):
        run: Callable[[list[Any]], Any] = compile_fx_inner(module, given, is_backward=is_backward)
    return run, list(strides or ())
