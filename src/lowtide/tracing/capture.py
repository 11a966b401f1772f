"""`lowtide.capture`: one whole training iteration as one graph."""

import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor, fx, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.errors import InputError, shown
from lowtide.graph.batch_form import BatchForm
from lowtide.graph.conditions import Conditions
from lowtide.graph.step_graph import Siblings, StepGraph
from lowtide.kernels.shards import is_sharded, local
from lowtide.optimizer.update import Micro, UpdateForm, parts, update
from lowtide.parallel.alone import Alone
from lowtide.records.vocabulary import Phase, Role
from lowtide.tracing.assemble import InputTensor, assemble
from lowtide.tracing.cleanup import (
    drop_aliases,
    drop_dead,
    forget_shape_sources,
    gather_outputs,
    own_gradients,
    write_early,
)
from lowtide.tracing.functional import draws_become_pure, functionalize, lift_constants
from lowtide.tracing.joint import Inputs, trace_joint
from lowtide.tracing.loss import Loss, model_loss
from lowtide.tracing.recorder import ORIGIN, Origin
from lowtide.tracing.refusals import (
    refuse_arrays,
    refuse_early,
    refuse_effects,
    refuse_layouts,
    refuse_modes,
    refuse_objects,
    refuse_others_on_ranks,
    refuse_seeding,
    refuse_stale_parameters,
    refuse_types,
)
from lowtide.tracing.settling import has_settled
from lowtide.tracing.signs import keep_signs, sign_relus
from lowtide.tracing.source import user_line
from lowtide.tracing.spreading import gather_late, reduced, whole_form
from lowtide.tracing.strides import keep_strides
from lowtide.tracing.wrappers import unwrapped
from lowtide.watching.guards import Guards
from lowtide.watching.memory import Memory
from lowtide.watching.settings import torch_settings
from lowtide.watching.watcher import Effect, Watcher, collector_waits, may_settle, profiler_waits

SIDE_EFFECTS = ("refuse", "ignore")
"""What becomes of a step that changes something in Python."""

_ONE_AT_A_TIME = threading.RLock()
"""Tracing hooks into torch's modules and switches parts of it over, for all threads."""


@dataclass(frozen=True)
class Traced:
    """Forward and backward of one iteration, without an ending."""

    model: nn.Module
    optimizer: Optimizer
    form: BatchForm
    example: Any
    graph: fx.Graph
    given: tuple[InputTensor, ...]
    """The graph's inputs, the batch last."""
    gradients: tuple[str, ...]
    """Names of the parameters whose gradients are the graph's last outputs."""
    extra: pytree.TreeSpec
    conditions: Conditions
    guards: Guards
    spread: Alone
    """Over which ranks, and how."""

    @cached_property
    def signs(self) -> int:
        """How many ReLU results can be kept as signs."""
        return len(sign_relus(self.graph))

    def finish(self, ending: UpdateForm, *, signs: bool = False) -> StepGraph:
        """The whole step; with `signs`, ReLU results that backward reads for their sign alone are kept as bits."""
        graph = fx.Graph()
        copied: dict[fx.Node, fx.Node] = {}
        results = graph.graph_copy(self.graph, copied)
        graph.output(results)
        if signs:
            keep_signs(graph)
        by_name = {x.name: x.tensor for x in self.given}
        assert isinstance(results, list)
        nodes = results[len(results) - len(self.gradients) :]
        gradients = dict(zip(self.gradients, nodes, strict=True))
        complete = reduced(graph, gradients, by_name, self.spread, ending)
        loose = _add_updates(graph, self.model, self.optimizer, by_name, complete, ending)
        graph.lint()
        ops, storages = assemble(
            graph, self.given, self.optimizer, [*gradients.values(), *complete.values()], adds=ending.adds
        )
        layers = (path for path, module in self.model.named_modules() if any(True for _ in module.parameters(False)))
        return StepGraph(
            model=self.model,
            optimizer=self.optimizer,
            form=self.form,
            graph=graph,
            ops=ops,
            storages=storages,
            residents=tuple(x.tensor for x in self.given[: len(self.given) - len(self.form.tensor_paths)]),
            layers=tuple(layers),
            loose=loose,
            extra=self.extra,
            example=self.example,
            ending=ending,
            conditions=self.conditions,
            guards=self.guards,
        )


def capture(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None = None,
    *,
    side_effects: str = "refuse",
) -> StepGraph:
    """Capture forward, backward and optimizer of one training step as one graph.

    `batch` is a mapping (`model(**batch)`), a sequence (`model(*batch)`) or a tensor. `loss(model, batch)` returns the
    scalar loss; without it the model's output has `.loss` or is itself the loss. Nothing runs and nothing of the
    user's changes: tracing works on tensors without data. What cannot be captured raises CaptureError; so does a
    forward that changes something in Python (a counter, a list), unless `side_effects="ignore"` says that this does not
    matter: then it happens in no step.
    """

    def again(other: Any) -> StepGraph:
        return trace(model, optimizer, other, loss, side_effects=side_effects).finish(UpdateForm())

    siblings = Siblings(again)
    graph = replace(again(batch), siblings=siblings)
    siblings.known.append(graph)
    return graph


def trace(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None = None,
    *,
    side_effects: str = "refuse",
    spread: Alone | None = None,
) -> Traced:
    """The part of `capture` that takes long; several endings can be put to it. One thread traces at a time.

    `spread` is how the model is spread over ranks; without it, a model that is spread is refused.
    """
    if side_effects not in SIDE_EFFECTS:
        raise InputError(f"side_effects must be one of {', '.join(SIDE_EFFECTS)}, not {shown(side_effects)}")
    with _ONE_AT_A_TIME, profiler_waits(), collector_waits():
        if spread is None:
            traced = _trace(model, optimizer, batch, loss, side_effects, Alone(model), spreads=False)
        else:
            with spread.aside():
                traced = _trace(model, optimizer, batch, loss, side_effects, spread, spreads=True)
        gc.collect(1)
        return traced


def _trace(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None,
    side_effects: str,
    spread: Alone,
    *,
    spreads: bool,
) -> Traced:
    optimizer = unwrapped(optimizer)
    refuse_types(model, optimizer, loss, spreads=spreads)
    form = BatchForm.of(batch)
    refuse_arrays(form)
    refuse_objects(form)
    tensors = form.tensors(batch)
    inputs = Inputs.of(model, optimizer)
    refuse_layouts(inputs, form, tensors)
    refuse_early(optimizer, inputs, form)
    refuse_modes()
    settings = torch_settings()
    watcher = Watcher(model, loss or model_loss)
    try:
        joint = trace_joint(model, loss or model_loss, inputs, form, tensors, watcher, spread)
        effects = watcher.effects({fake: real for fake, (_, real) in joint.stand_ins.items()})
        settled: list[Effect] = []
        _drop_young()
        if may_settle(effects, joint.forward_effects) and has_settled(
            model, loss or model_loss, inputs, form, tensors, joint.forward, spread
        ):
            settled, effects = effects, []
        refuse_seeding(watcher.seeded)
        if side_effects == "refuse":
            refuse_effects(effects, watcher.printed, watcher.asked, joint.line)
        _drop_young()
    finally:
        watcher.restore()
        watcher.forget()
    constants = lift_constants(joint.module)
    outside = {id(tensor): name for name, tensor in inputs.outside.items()}
    refuse_stale_parameters(inputs, constants)
    draws_become_pure(joint.module.graph)
    keep_strides(joint.module.graph)
    given = [
        *(InputTensor(name, tensor, Role.PARAMETER) for name, tensor in inputs.parameters.items()),
        *(InputTensor(name, tensor, Role.OTHER) for name, tensor in inputs.buffers.items()),
        *(InputTensor(path, tensor, Role.OTHER) for path, tensor in zip(form.tensor_paths, tensors, strict=True)),
        *(
            InputTensor(outside.get(id(t), f"constant.{k}"), t, Role.PARAMETER if id(t) in outside else Role.OTHER)
            for k, t in enumerate(constants)
        ),
    ]
    graph = functionalize(joint.module.graph, [local(x.tensor) for x in given])
    _drop_young()
    _batch_last(graph, given, len(inputs.parameters) + len(inputs.buffers), len(tensors))
    drop_aliases(graph)
    forget_shape_sources(graph)
    by_name = {x.name: x.tensor for x in given}
    gradients = _take_gradients(graph, joint.trainable, by_name)
    refuse_others_on_ranks(optimizer, {name: by_name[name] for name in gradients}, spread.group)
    drop_dead(graph)
    gather_late(graph)
    gather_outputs(graph)
    write_early(graph)
    memory = Memory.of([x.tensor for x in given[: len(given) - len(tensors)] if not is_sharded(x.tensor)], tensors)
    guards = Guards.of(watcher, settings, memory, settled, joint.kept)
    return Traced(
        *(model, optimizer, form, batch, graph, tuple(given), tuple(gradients)),
        *(joint.extra, joint.conditions, guards, spread),
    )


def _drop_young() -> None:
    """Collect what the last pass made and left behind; by itself the collector waits until the trace is over.

    What Python has taken for small objects it hardly gives back, as a few that stay hold it: the peak counts. What is
    there counts as old only when the trace is over: a quarter more of old objects makes Python look at all there are.
    """
    gc.collect(0)


def _batch_last(graph: fx.Graph, given: list[InputTensor], at: int, count: int) -> None:
    """Reorder the inputs so that the batch comes last: parameters, buffers, constants, batch."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in placeholders[at : at + count]:
        placeholders[-1].append(node)
        placeholders.append(node)
    given[:] = given[:at] + given[at + count :] + given[at : at + count]
    ordered = [node for node in graph.nodes if node.op == "placeholder"]
    for node, x in zip(ordered, given, strict=True):
        node.meta["lowtide_name"] = x.name
        node._rename(_identifier(x.name))


def _identifier(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name).strip("_")


def _take_gradients(graph: fx.Graph, trainable: Sequence[str], by_name: dict[str, Tensor]) -> dict[str, fx.Node]:
    """Cut the gradients off the graph's outputs and make each the parameter's own; parameters without one drop out."""
    output = next(node for node in graph.nodes if node.op == "output")
    results = list(output.args[0])
    count = len(trainable)
    there = [(n, g) for n, g in zip(trainable, results[len(results) - count :], strict=True) if g is not None]
    forms = [whole_form(by_name[n]) if is_sharded(by_name[n]) else by_name[n] for n, _ in there]
    owned = own_gradients(graph, [g for _, g in there], forms)
    output.args = ([*results[: len(results) - count], *owned],)
    return {name: node for (name, _), node in zip(there, owned, strict=True) if node is not None}


def _add_updates(
    graph: fx.Graph,
    model: nn.Module,
    optimizer: Optimizer,
    by_name: dict[str, Tensor],
    gradients: dict[str, fx.Node],
    ending: UpdateForm,
) -> tuple[Tensor, ...]:
    """Append the updates; returns the parameters whose gradients the graph gives back instead.

    One of a parameter that the optimizer does not hold adds its gradient to `.grad`, and moves nothing.
    """
    output = next(node for node in graph.nodes if node.op == "output")
    results = list(output.args[0])
    results = results[: len(results) - len(gradients)]
    names = {id(by_name[name]): name for name in gradients}
    inputs = {node.meta["lowtide_name"]: node for node in graph.nodes if node.op == "placeholder"}
    where = user_line()
    updated: set[str] = set()
    options: dict[str, Any] = {key: value for key, value in (("add", ending.adds),) if value}
    together_parts: list[list[Tensor]] = list(parts(optimizer, [by_name[name] for name in gradients]))
    held = {id(p) for part in together_parts for p in part}
    others = [[by_name[name]] for name in gradients if id(by_name[name]) not in held]
    if ending.micro is Micro.FIRST:
        together_parts = others
    elif ending.micro is Micro.NEXT:
        together_parts = [[by_name[name]] for name in gradients]
        options["move"] = False
    elif ending.clip is not None:
        own = [p for p in model.parameters() if id(p) in names]
        outside = [by_name[name] for name in gradients if all(by_name[name] is not p for p in own)]
        together_parts = [[*own, *outside]]
        options["clip"] = (ending.clip, len(own))
    else:
        together_parts += others
    calls = max((n.meta[ORIGIN].call for n in graph.nodes if n.meta.get(ORIGIN)), default=0)
    for part in _join_sharing(together_parts):
        together = [names[id(p)] for p in part]
        calls += 1
        with graph.inserting_before(output):
            node = graph.call_function(
                update, ([inputs[n] for n in together], [gradients[n] for n in together]), options
            )
        module = together[0].rpartition(".")[0] if len(together) == 1 else ""
        node.meta[ORIGIN] = Origin(Phase.OPTIMIZER, module, where, calls)
        label = together[0] if len(together) == 1 else "all" if len(together) == len(gradients) else f"group_{calls}"
        node._rename(f"update_{_identifier(label)}")
        updated.update(together)
    rest = [name for name in gradients if name not in updated]
    output.args = ([*results, *(gradients[name] for name in rest)],)
    return tuple(by_name[name] for name in rest)


def _join_sharing(parts: list[list[Tensor]]) -> list[list[Tensor]]:
    """Parts whose parameters lie in one storage, such as slices of a flat buffer, become one: they write one thing."""
    joined: dict[int, list[Tensor]] = {}
    number_of: dict[int, int] = {}
    for number, part in enumerate(parts):
        storages = {local(p).untyped_storage()._cdata for p in part}
        sharing = sorted({number_of[s] for s in storages if s in number_of})
        joined[number] = [p for other in sharing for p in joined.pop(other)] + part
        for p in joined[number] if sharing else part:
            number_of[local(p).untyped_storage()._cdata] = number
    return list(joined.values())
