"""The backend: what torch.compile calls for every graph that dynamo finds."""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.utils import get_metrics_context
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.utils import _pytree as pytree

from lowtide.compiling.compiled_graph import CompiledGraph, eager_halves
from lowtide.compiling.loop import loop_of
from lowtide.compiling.settings import Settings, settings_of
from lowtide.compiling.sizes import BySize, vary
from lowtide.errors import CaptureError
from lowtide.graph.program import Halves
from lowtide.graph.step_graph import StepGraph
from lowtide.tracing.compiled import compiled_step, drawn_once, inputs_of, refuse
from lowtide.tracing.partitioned import stitched

Run = Callable[[list[Any]], list[Any]]


def backend(
    module: fx.GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """For `torch.compile(model, backend="lowtide", options={"budget": "4GiB"})`: see `lowtide.configure`."""
    settings = settings_of(options)
    if settings.budget is not None and vary(module, examples):
        sized = BySize(
            module,
            partial(_compiled, settings=settings),
            lambda x, why: loop_of(settings, x.device).runs_unplanned(why),
        )
        by_size: Callable[..., Any] = torch.compiler.disable(sized, reason="lowtide compiles each size by itself")
        return by_size
    return _compiled(module, examples, settings)


def _compiled(module: fx.GraphModule, examples: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    compiling = _Compiling(module, list(examples), settings)
    if settings.executor == "inductor":
        from lowtide.compiling.inductor import compile_through

        return compile_through(module, examples, None if settings.budget is None else compiling)
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=compiling.forward,
        bw_compiler=compiling.backward,
        inference_compiler=as_it_is,
        partition_fn=compiling.partition,
        keep_inference_input_mutations=True,
    )(module, examples)
    return compiled


def as_it_is(module: fx.GraphModule, examples: Sequence[Any]) -> Run:
    """Run a graph op by op, each value freed behind its last use: what torch's `aot_eager` does."""
    run: Run = boxed_nop(module, list(examples))
    return run


class _Compiling:
    """One graph on its way through AOTAutograd."""

    def __init__(self, module: fx.GraphModule, examples: list[Any], settings: Settings) -> None:
        self._module = module
        self._examples = examples
        self._settings = settings
        self._graph: CompiledGraph | None = None

    def partition(
        self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **rest: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Take the joint graph as it is; AOTAutograd gets two halves that show what goes in and out, nothing else."""
        device = next(x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor)).device
        loop = loop_of(self._settings, device)
        loop.compiles(_why_again())
        try:
            refuse(joint.graph)
            self._graph = CompiledGraph(*self._captured(joint, inputs, num_fwd_outputs, rest), loop)
        except CaptureError as error:
            loop.runs_unplanned(str(error))
            halves: tuple[fx.GraphModule, fx.GraphModule] = min_cut_rematerialization_partition(
                joint, inputs, num_fwd_outputs=num_fwd_outputs, **rest
            )
            return halves
        finally:
            self._examples = []
        return _facades(joint, num_fwd_outputs)

    def _captured(
        self, joint: fx.GraphModule, inputs: Any, outputs: int, rest: dict[str, Any]
    ) -> tuple[StepGraph, Callable[[StepGraph], Halves]]:
        """What is planned, and what makes halves of it. Inductor's starts from the halves that it would run itself."""
        if self._settings.executor == "eager":
            return compiled_step(joint, outputs, inputs_of(joint, self._module, self._examples)), eager_halves
        from lowtide.compiling.inductor import Inductor, need_compiler

        need_compiler(next(x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor)).device)
        halves = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=outputs, **rest)
        whole = stitched(*halves, outputs)
        captured = compiled_step(whole, outputs, inputs_of(whole, self._module, self._examples))
        return drawn_once(captured), Inductor(*halves, outputs)

    def inner(self, module: fx.GraphModule, examples: Sequence[Any], **rest: Any) -> Any:
        """What runs a half that inductor is given: the planned one, or what it makes of it itself."""
        if self._graph is None or rest.get("is_inference"):
            from torch._inductor.compile_fx import compile_fx_inner

            return compile_fx_inner(module, examples, **rest)
        return _boxed(self._graph.backward if rest.get("is_backward") else self._graph.forward)

    def forward(self, module: fx.GraphModule, examples: Sequence[Any]) -> Run:
        """What runs forward."""
        return as_it_is(module, examples) if self._graph is None else _boxed(self._graph.forward)

    def backward(self, module: fx.GraphModule, examples: Sequence[Any]) -> Run:
        """What runs backward."""
        return as_it_is(module, examples) if self._graph is None else _boxed(self._graph.backward)


def _why_again() -> str | None:
    """Why dynamo compiles what it had compiled before; None where it is the first time."""
    reason: str | None = get_metrics_context()._metrics.get("recompile_reason")
    return reason


def _boxed(run: Run) -> Run:
    def boxed(args: list[Any]) -> list[Any]:
        return run(args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _facades(joint: fx.GraphModule, outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward with the inputs and outputs of `joint`, and one small tensor from the first to the second.

    AOTAutograd reads their forms and never runs them: which values really cross is the plan's to decide, and it may
    change from step to step.
    """
    nodes = list(joint.graph.nodes)
    results: Any = nodes[-1].args[0]
    given = [node for node in nodes if node.op == "placeholder"]
    late = [node for node in given if node.meta.get("partitioner_tag") == "is_backward"]
    mode = given[0].meta["val"].fake_mode
    with mode:
        carrier = torch.empty(1, dtype=torch.int64)
    first, second = fx.Graph(), fx.Graph()
    known = {node: _placeholder(first, node) for node in given if node not in late}
    returned = [_stand_in(first, x, known) for x in results[:outputs]]
    carried = first.call_function(torch.ops.aten.empty.memory_format, ([1],), {"dtype": torch.int64})
    carried.meta["val"] = carrier
    first.output((*returned, carried))
    taken = second.placeholder("carrier")
    taken.meta["val"] = carrier
    arrived = {node: _placeholder(second, node) for node in late}
    second.output(tuple(_stand_in(second, x, arrived) for x in results[outputs:]))
    return fx.GraphModule(joint, first), fx.GraphModule(joint, second)


def _placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    made = graph.placeholder(node.name)
    made.meta = dict(node.meta)
    return made


def _stand_in(graph: fx.Graph, value: Any, known: Mapping[fx.Node, fx.Node]) -> Any:
    """A node in the form of `value`."""
    if not isinstance(value, fx.Node):
        return value
    if value in known:
        return known[value]
    made = graph.call_function(operator.getitem, (next(iter(known.values())), 0))
    made.meta = dict(value.meta)
    return made
