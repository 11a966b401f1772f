"""AOTAutograd's joint graph as a StepGraph: forward, the boundary where the gradients come in, backward, no optimizer.

The graph is pure already, so none of capture's passes for eager's in-place ops are needed: what it must be equal to is
the same graph run as it stands. What is left to do: forward before backward, running statistics moved by batch norm
itself, and the gradients of the outputs made by a boundary instead of being inputs.
"""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from lowtide.errors import CaptureError
from lowtide.graph.batch_form import BatchForm
from lowtide.graph.conditions import Conditions
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.boundary import boundary, opening
from lowtide.optimizer.update import UpdateForm
from lowtide.records.vocabulary import Phase, Role
from lowtide.tracing.assemble import InputTensor, assemble
from lowtide.tracing.cleanup import drop_dead, forget_shape_sources, gather_outputs
from lowtide.tracing.functional import lift_constants
from lowtide.tracing.recorder import ORIGIN, Origin
from lowtide.tracing.source import short
from lowtide.watching.guards import Guards
from lowtide.watching.memory import Memory
from lowtide.watching.values import Copies

aten = torch.ops.aten
_BEHIND = ("is_backward", "must_be_in_backward")
_ALIASES = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default}
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_PART = re.compile(r"'([^']*)'|\.(\w+)")


@dataclass(frozen=True, slots=True)
class Input:
    """What is known of an input of a compiled graph beside its shape."""

    name: str
    is_parameter: bool


def compiled_step(joint: fx.GraphModule, outputs: int, inputs: Sequence[Input]) -> StepGraph:
    """The step that `joint` computes; its first `outputs` results are forward's.

    It has nothing that `refuse` refuses. `joint` stays as it is.
    """
    module = fx.GraphModule(joint, fx.Graph(tracer_cls=joint.graph._tracer_cls))
    copied: dict[fx.Node, fx.Node] = {}
    module.graph.output(module.graph.graph_copy(joint.graph, copied))
    for old, new in copied.items():
        new.meta = dict(old.meta)
    graph = module.graph
    constants = lift_constants(module)
    given = [node for node in graph.nodes if node.op == "placeholder"]
    gradients = [node for node in given if node.meta.get("partitioner_tag") in _BEHIND]
    primals = [node for node in given if node not in gradients]
    primals = [*primals[len(primals) - len(constants) :], *primals[: len(primals) - len(constants)]]
    _drop_aliases(graph)
    _note_origins(graph)
    _move_statistics(graph)
    _split(graph, primals, gradients, outputs)
    forget_shape_sources(graph)
    drop_dead(graph)
    gather_outputs(graph)
    graph.lint()
    named = [Input(f"constant.{k}", False) for k in range(len(constants))] + list(inputs)
    tensors = [
        InputTensor(x.name, node.meta["val"], Role.PARAMETER if x.is_parameter else Role.OTHER)
        for x, node in zip(named, primals, strict=True)
    ]
    for node, x in zip(primals, named, strict=True):
        node.meta["lowtide_name"] = x.name
    results: Any = next(node for node in graph.nodes if node.op == "output").args[0]
    returned = results[outputs:]
    complete = [g for g, x in zip(returned, inputs, strict=True) if isinstance(g, fx.Node) and x.is_parameter]
    ops, storages = assemble(graph, tensors, None, complete)
    return StepGraph(
        model=nn.Module(),
        optimizer=None,
        form=BatchForm.of([node.meta["val"] for node in primals[len(constants) :]]),
        graph=graph,
        ops=tuple(_spare_forward(op, ops) for op in ops),
        storages=storages,
        residents=tuple(constants),
        layers=(),
        loose=(),
        extra=pytree.tree_structure(()),
        example=None,
        ending=UpdateForm(),
        conditions=Conditions(len(inputs)),
        guards=Guards((), Copies(), {}, Memory.of((), ())),
    )


def drawn_once(step: StepGraph) -> StepGraph:
    """`step` for a compiler that cannot go back in the generator: what draws from it runs once. In inductor's graphs
    that is one op which makes seeds; the numbers are functions of these."""
    return replace(step, ops=tuple(replace(op, repeats=op.repeats and not op.is_random) for op in step.ops))


def refuse(graph: fx.Graph) -> None:
    """What cannot be planned, in a sentence that says why."""
    for node in graph.nodes:
        values = [x for x in pytree.tree_leaves(node.meta.get("val")) if not isinstance(x, Tensor)]
        sizes = [size for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, Tensor) for size in x.shape]
        if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in (*values, *sizes)):
            raise CaptureError(
                "it has a size or a number that is known only while it runs, and a plan is for fixed ones: compute it "
                "outside of the compiled module"
            )
        if "recompute" in node.meta:
            raise CaptureError(
                "it has regions of torch.utils.checkpoint, which are left as they are: without them lowtide decides "
                "what to recompute"
            )
        callable_ = isinstance(node.target, OpOverload) or node.target is operator.getitem
        if node.op == "call_function" and not callable_:
            raise CaptureError(f"it calls {getattr(node.target, '__name__', node.target)}, which is no op of torch")
        if node.op == "call_module":
            raise CaptureError(f"it calls the module {node.target} as a whole")


def _drop_aliases(graph: fx.Graph) -> None:
    """Remove `detach` and its like, but for what is returned: whether two results are one tensor is seen outside."""
    for node in list(graph.nodes):
        if node.target in _ALIASES:
            for user in [user for user in node.users if user.op != "output"]:
                user.replace_input_with(node, node.args[0])
            if not node.users:
                graph.erase_node(node)


def _note_origins(graph: fx.Graph) -> None:
    """Phase, module and line of every op, from what dynamo and AOTAutograd wrote on it."""
    for number, node in enumerate(graph.nodes):
        if node.op != "call_function":
            continue
        backward = node.meta.get("partitioner_tag") in _BEHIND
        stack = node.meta.get("fwd_nn_module_stack" if backward else "nn_module_stack") or {}
        path, sequence = [*stack.values(), ("", None)][0 if not stack else len(stack) - 1][0], node.meta.get("seq_nr")
        lines = _LINE.findall(node.meta.get("stack_trace") or "")
        source = f"{short(lines[-1][0])}:{lines[-1][1]}" if lines else ""
        in_place = str(aten.add_.Tensor) if backward and node.target is aten.add.Tensor else ""
        node.meta[ORIGIN] = Origin(
            Phase.BACKWARD if backward else Phase.FORWARD,
            readable(path),
            source,
            call=-number - 1 if backward or sequence is None else sequence,
            forward_call=sequence if backward else None,
            in_place=in_place,
        )


def readable(source: str) -> str:
    """`fc.weight` for `L['self']._modules['fc']._parameters['weight']`: where dynamo found a module or a tensor."""
    parts = [quoted or plain for quoted, plain in _PART.findall(source)]
    return ".".join(part for part in parts[1:] if part not in ("_modules", "_parameters", "_buffers")) or source


def _move_statistics(graph: fx.Graph) -> None:
    """Let batch norm move its running statistics itself, as eager's kernel does, so that it can run again without.

    torch.compile's form returns them, and they are copied into the buffers at the end of forward; backward is given
    them and, in training, reads nothing of them.
    """
    for node in list(graph.nodes):
        if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
            node.args = (*node.args[:3], None, None, *node.args[5:])
    for node in list(graph.nodes):
        if node.target is not aten._native_batch_norm_legit_functional.default or node.args[5] is not True:
            continue
        items = {user.args[1]: user for user in node.users}
        copies = [next(iter(items[k].users), None) if k in items and len(items[k].users) == 1 else None for k in (3, 4)]
        buffers = node.args[3:5]
        if not all(c is not None and c.target is aten.copy_.default for c in copies):
            continue
        if [c.args[0] for c in copies if c is not None] != list(buffers):
            continue
        if any(len(set(buffer.users)) != 2 for buffer in buffers):  # somebody else reads the old statistics
            continue
        for copy, k in zip(copies, (3, 4), strict=True):
            assert copy is not None
            if copy.users:
                copy.replace_all_uses_with(copy.args[0])
            graph.erase_node(copy)
            graph.erase_node(items[k])
        node.target = aten.native_batch_norm.default
        node.meta["val"] = node.meta["val"][:3]


def _split(graph: fx.Graph, primals: Sequence[fx.Node], gradients: Sequence[fx.Node], outputs: int) -> None:
    """Inputs, forward, boundary, backward: put everything into this order, each part in its own."""
    output = next(node for node in graph.nodes if node.op == "output")
    results: Any = output.args[0]
    calls = [node for node in graph.nodes if node.op == "call_function"]
    late: set[fx.Node] = set(gradients)
    for node in calls:
        if node.meta.get("partitioner_tag") in _BEHIND or not late.isdisjoint(node.all_input_nodes):
            late.add(node)
    if any(isinstance(x, fx.Node) and x in late for x in results[:outputs]):
        raise CaptureError("an output of its forward is computed in its backward")
    with graph.inserting_before(output):
        device = gradients[0].meta["val"].device
        before = graph.call_function(opening, (device,))
        forms = [_form(node) for node in gradients]
        crossing = graph.call_function(boundary, (list(results[:outputs]), before, forms))
        arrived = [graph.call_function(operator.getitem, (crossing, k + 1)) for k in range(len(gradients))]
    with gradients[0].meta["val"].fake_mode:
        before.meta["val"], after = (torch.empty(0, dtype=torch.uint8, device=device) for _ in range(2))
    crossing.meta = {"val": [after, *(node.meta["val"] for node in gradients)]}
    before._rename("others_before")
    crossing._rename("boundary")
    for node, item in zip(gradients, arrived, strict=True):
        item.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(item)
    calls_at = [node for node in calls if node not in late] + [crossing, *arrived]
    calls_at += [node for node in calls if node in late]
    for node in (*primals, before, *calls_at):
        output.prepend(node)
    for node, item in zip(gradients, arrived, strict=True):
        name = node.name
        graph.erase_node(node)
        item._rename(name)
    before.meta[ORIGIN] = Origin(Phase.FORWARD, "", "", call=-len(calls) - 1)
    for node in (crossing, *arrived):
        node.meta[ORIGIN] = Origin(Phase.BACKWARD, "", "", call=-len(calls) - 2)
    for node in late:
        if ORIGIN in node.meta and node.meta[ORIGIN].phase is Phase.FORWARD:
            node.meta[ORIGIN] = replace(node.meta[ORIGIN], phase=Phase.BACKWARD)


def _form(node: fx.Node) -> tuple[list[int], list[int], torch.dtype, torch.device]:
    value: Tensor = node.meta["val"]
    return list(value.shape), list(value.stride()), value.dtype, value.device


def _spare_forward(op: Op, ops: Sequence[Op]) -> Op:
    """Backward overwrites nothing that forward has made, for it may run twice (`retain_graph`), nor what came in at the
    boundary, which is the caller's."""
    if op.overwrites is None:
        return op
    maker = next(other for other in ops if op.overwrites in other.makes)
    crosses = maker.phase is Phase.FORWARD and op.phase is Phase.BACKWARD
    return replace(op, overwrites=None) if crosses or maker.node.target is boundary else op


def inputs_of(joint: fx.GraphModule, module: fx.GraphModule, examples: Sequence[Any]) -> list[Input]:
    """The inputs of the joint graph, named by where dynamo found those of its `module`; each name stands once."""
    sources = [node.meta.get("grapharg") for node in module.graph.nodes if node.op == "placeholder"]
    found: list[Input] = []
    for node in joint.graph.nodes:
        if node.op != "placeholder" or node.meta.get("partitioner_tag") in _BEHIND:
            continue
        place = getattr(node.meta.get("desc"), "idx", len(sources))
        known = place < len(sources) and getattr(sources[place], "source", None) is not None
        name = readable(sources[place].source.name) if known else node.name
        is_parameter = known and isinstance(examples[place], nn.Parameter)
        found.append(Input(name if all(x.name != name for x in found) else node.name, is_parameter))
    return found
