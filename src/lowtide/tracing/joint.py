"""Traces forward and backward of one iteration into one flat aten graph, in-place ops still in it."""

import logging
import random
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx
from torch.utils import _pytree as pytree

from lowtide.errors import CaptureError, LowtideError, shortened
from lowtide.graph.batch_form import BatchForm
from lowtide.graph.conditions import Conditions
from lowtide.kernels.effects import is_random
from lowtide.kernels.shards import local
from lowtide.parallel.alone import Alone
from lowtide.tracing.known import KnownValues, models_may_look
from lowtide.tracing.loss import Loss, loss_and_rest
from lowtide.tracing.real_writes import RealWrites
from lowtide.tracing.recorder import Recorder, data_dependent, foreign_random, new_nodes, random_states
from lowtide.tracing.replaced import methods_of_modules, modules_called_as
from lowtide.tracing.signature import Signature
from lowtide.tracing.source import line_of, user_line
from lowtide.tracing.spreading import note_gathers
from lowtide.tracing.value_dependent import ValueDependent
from lowtide.watching.caches import Filling
from lowtide.watching.watcher import Effect, Watcher, collector_waits, plain_attributes


@dataclass(frozen=True)
class Inputs:
    """The tensors that a step starts from, by name; tied parameters and buffers stand once."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    outside: dict[str, Tensor]
    """Parameters that the optimizer holds and the model does not, such as those of a loss module."""

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> "Inputs":
        """Collect them; parameters are leaves that the user's own objects keep holding."""
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        known = {id(p) for p in parameters.values()}
        held = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
        return cls(parameters, dict(model.named_buffers()), {f"outside.{k}": p for k, p in enumerate(held)})


@dataclass(frozen=True)
class Joint:
    """The flat graph; its outputs are the loss, what else `loss` returned, then a gradient or None per trainable."""

    module: fx.GraphModule
    trainable: tuple[str, ...]
    extra: pytree.TreeSpec
    """The structure of what `loss` returned beside the loss."""
    conditions: Conditions
    """What the step decided by looking at the batch."""
    line: str
    """The user's line that made the loss."""
    forward: Signature
    stand_ins: dict[int, tuple[Tensor, Tensor]]
    """By identity, the tensors that stood for the model's own, and those."""
    forward_effects: Sequence[Effect]
    """What had changed in Python when forward was over."""
    kept: Sequence[Filling]
    """What functions under lru_cache keep of it."""


def trace_joint(
    model: nn.Module,
    loss: Loss,
    inputs: Inputs,
    form: BatchForm,
    batch: Sequence[Tensor],
    watcher: Watcher,
    spread: Alone,
) -> Joint:
    """Trace with fake tensors: no kernel of the step runs and no memory is taken.

    The graph starts from what this rank holds of each parameter, and gathers the rest as the model is `spread`.
    What the user's Python does meanwhile is the `watcher`'s to see and to undo.
    """
    everything = inputs.parameters | inputs.outside
    trainable = [name for name, p in everything.items() if p.requires_grad]
    extra: list[pytree.TreeSpec] = []
    lines: list[str] = []
    signatures: list[Signature] = []
    known = KnownValues(batch)
    stand_ins: dict[int, Tensor] = {}
    reals_by_id = {id(tensor): tensor for tensor in (*inputs.parameters.values(), *inputs.buffers.values())}
    forward_effects: list[Effect] = []
    kept: list[Filling] = []
    writes = RealWrites()
    methods, cached = methods_of_modules(), torch.is_autocast_cache_enabled()

    def step(parameters: list[Tensor], buffers: list[Tensor], leaves: list[Tensor]) -> list[Tensor | None]:
        recorder = Recorder(model, known, writes)
        given = _gathered(dict(zip(inputs.parameters, parameters, strict=True)), spread)
        own = {name: tensor.requires_grad_(inputs.parameters[name].requires_grad) for name, tensor in given.items()}
        state = own | dict(zip(inputs.buffers, buffers, strict=True))
        reals = inputs.parameters | inputs.buffers
        stand_ins.update({id(reals[name]): tensor for name, tensor in state.items()})
        for name, tensor in state.items():
            vars(tensor).update(plain_attributes(reals[name]))
        for name in own:
            own[name]._is_param = True  # what isinstance(p, nn.Parameter) asks for
        known.start(leaves)
        untouched = [buffer._version for buffer in buffers]
        with recorder, torch.enable_grad(), _autocast_cache(cached):
            with (
                modules_called_as(methods),
                standing_in(model, stand_ins) as swapped,
                recorder.modules(),
                ValueDependent([*state.values(), *leaves]) as seen,
                watcher.watching(),
            ):
                returned = loss(model, form.rebuild(leaves))
                replaced = [*_replaced_buffers(swapped), *seen.replaced.values()]
            forward_effects.extend(watcher.effects({id(fake): reals_by_id[real] for real, fake in stand_ins.items()}))
            kept.extend(watcher.caches.filled())
            _refuse_kept(kept, recorder.last_line or user_line())
            _refuse_checkpoint(recorder.checkpoint_at)
            written = [n for n, b, v in zip(inputs.buffers, buffers, untouched, strict=True) if b._version != v]
            spread.refuse_calls(recorder.calls_of_model, written, recorder.last_line or user_line())
            _refuse_backward(own, recorder.last_line or user_line())
            value, rest = _loss_and_rest(returned, recorder.last_line or user_line())
            tensors, spec = pytree.tree_flatten(rest)
            extra.append(spec)
            lines.append(recorder.last_line)
            signatures.append(recorder.signature)
            recorder.follow_backward(value)
            trainable.extend(_add_others(value, own, inputs, {id(state[name]) for name in inputs.buffers}))
            wanted = [own.get(name, inputs.outside.get(name)) for name in trainable]
            # People run forward inside autocast and backward outside of it.
            with torch._C._DisableAutocast(), watcher.watching():
                gradients = torch.autograd.grad(value, wanted, allow_unused=True)  # type: ignore[arg-type]
            # Not before: backward still reads the tensor that was replaced, as in eager.
            _write_replaced_buffers(replaced)
        return [value.detach(), *(x.detach() if isinstance(x, Tensor) else x for x in tensors), *gradients]

    with quiet_trace():
        try:
            traced = make_fx(
                step, tracing_mode="fake", _allow_non_fake_inputs=True, _disable_torch_fn_metadata_mode=True
            )([local(x).detach() for x in inputs.parameters.values()], list(inputs.buffers.values()), list(batch))
        except LowtideError:
            raise
        except Exception as error:
            where = line_of(error) or user_line()
            if "dynamo-optimized" in str(error):
                raise CaptureError(
                    f"{where}: the step calls a function under torch.compile, which cannot be traced: call the "
                    "function itself, without torch.compile"
                ) from None
            if ".numpy()" in str(error):
                raise CaptureError(
                    data_dependent(where, "a tensor's values are taken out of torch (.numpy())")
                ) from None
            reason = shortened(str(error).rstrip("."), 500)
            raise CaptureError(
                f"{where}: tracing the step failed with {type(error).__name__}: {reason}. "
                "Run the same step eagerly: if that works, lowtide cannot trace this op"
            ) from error
        finally:
            writes.restore()
    return Joint(
        traced,
        tuple(trainable),
        extra[0],
        known.conditions(),
        lines[0],
        signatures[0],
        {id(fake): (fake, reals_by_id[real]) for real, fake in stand_ins.items()},
        forward_effects,
        [Filling(filling.function, filling.key, None) for filling in kept],
    )


def _gathered(parameters: Mapping[str, Tensor], spread: Alone) -> dict[str, Tensor]:
    """Whole parameters, before the recorder looks: gathering is no op of the user's."""
    mode = get_proxy_mode()
    assert mode is not None, "a trace works inside make_fx only"
    last = mode.tracer.graph._root.prev
    with torch.no_grad():
        given = spread.gathered(parameters)
    note_gathers(list(new_nodes(mode.tracer.graph, last))[::-1], spread, user_line())
    return given


def _add_others(value: Tensor, own: Mapping[str, Tensor], inputs: Inputs, buffers: Container[int]) -> list[str]:
    """Names for what else gets a gradient: parameters that neither model nor optimizer holds, such as another model's
    through which the loss goes. They become `inputs` from outside."""
    names = {id(tensor): name for name, tensor in (inputs.parameters | inputs.buffers).items()}
    known = {id(tensor) for tensor in (*own.values(), *inputs.outside.values())}
    added = []
    for leaf in _leaves(value):
        if id(leaf) in known:
            continue
        if id(leaf) in names:
            raise stale_parameter(names[id(leaf)])
        if id(leaf) in buffers:
            raise CaptureError(
                f"{user_line()}: a buffer of the model requires grad, and a step has gradients for parameters alone: "
                "register it as a parameter, or set requires_grad_(False)"
            )
        if isinstance(leaf, FakeTensor):
            continue  # made in the step, and gone with it
        name = f"outside.{len(inputs.outside)}"
        inputs.outside[name] = leaf
        added.append(name)
    return added


def stale_parameter(name: str) -> CaptureError:
    """The loss holds a parameter of the model by itself, or what was made from it: its gradient would be lost."""
    return CaptureError(
        f"{user_line()}: the step reads {name!r} through a reference taken before it, not from the model: read it as "
        "an attribute of the model inside the loss function"
    )


def _leaves(value: Tensor) -> Iterator[Tensor]:
    """The tensors that a backward from `value` leaves gradients in."""
    stack, seen = [value.grad_fn], set[Any]()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        stack.extend(following for following, _ in node.next_functions)


def _loss_and_rest(returned: Any, line: str) -> tuple[Tensor, Any]:
    """Split what the loss function returned, refusing what cannot be differentiated; `line` is where it was made."""
    value, rest = loss_and_rest(returned)
    if not isinstance(value, Tensor):
        raise CaptureError(
            f"{line}: the loss must be a tensor, alone, first in a tuple or as 'loss' in a dict, not "
            f"{type(value).__name__}: return it from the loss function"
        )
    if value.numel() != 1:
        raise CaptureError(
            f"{line}: the loss has shape {list(value.shape)}, but backward starts from one number: "
            "reduce it with .mean() or .sum()"
        )
    if value.grad_fn is None:
        raise CaptureError(
            f"{line}: the loss does not depend on any trainable parameter, so there is no gradient: "
            "look for torch.no_grad(), .detach() or frozen parameters on its way"
        )
    return value, rest


@contextmanager
def quiet_trace() -> Iterator[None]:
    """Around everything that runs the user's code on stand-ins."""
    with (
        _nothing_random_outside_torch(),
        _forked_rng(),
        _quiet_meta_functions(),
        models_may_look(),
        collector_waits(),
        _use_lazy_graph_module(True),  # the graph is what counts: its code is never called
    ):
        yield


@contextmanager
def _autocast_cache(enabled: bool) -> Iterator[None]:
    """As eager does: with autocast a weight used twice is cast once, and its gradient is summed before the cast back.
    Unless the user has switched that off.

    make_fx switches the cache off; with it off, the sum would be rounded differently.
    """
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(enabled)
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(before)


@contextmanager
def _quiet_meta_functions() -> Iterator[None]:
    """torch logs a traceback before it raises; the error that we make of it says enough."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _forked_rng() -> Iterator[None]:
    """Tracing draws nothing, but a user's code may seed; the generators end where they began."""
    with torch.random.fork_rng():
        yield


@contextmanager
def _nothing_random_outside_torch() -> Iterator[None]:
    """Refuse a forward that asks Python or numpy for random numbers: the trace would freeze what it got."""
    before, python, numpy = random_states(), random.getstate(), np.random.get_state()
    try:
        yield
        if random_states() != before:
            raise CaptureError(foreign_random(f"in what is called at {user_line()}"))
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@dataclass(frozen=True, slots=True)
class Swapped:
    """One entry of a module's table of parameters or buffers, and what stands there during the trace."""

    table: dict[str, Tensor | None]
    name: str
    path: str
    real: Tensor
    stand_in: Tensor


@contextmanager
def standing_in(model: nn.Module, stand_ins: Mapping[int, Tensor]) -> Iterator[list[Swapped]]:
    """Put `stand_ins` (by the identity of what they stand for) into the model wherever a tensor is registered.

    By identity, so that tied weights and modules under several names get one stand-in each.
    """
    swapped = [
        Swapped(table, name, f"{path}.{name}".lstrip("."), real, stand_ins[id(real)])
        for path, module in model.named_modules()
        for table in (module._parameters, module._buffers)
        for name, real in table.items()
        if real is not None and id(real) in stand_ins
    ]
    try:
        for entry in swapped:
            entry.table[entry.name] = entry.stand_in
        yield swapped
    finally:
        for entry in swapped:
            entry.table[entry.name] = entry.real


def _replaced_buffers(swapped: Sequence[Swapped]) -> list[tuple[Tensor, Tensor]]:
    """Where a forward assigns a new tensor to a buffer: the stand-in of the buffer, and the new value."""
    found = []
    stand_ins = {entry.stand_in.untyped_storage()._cdata for entry in swapped}
    for entry in swapped:
        now, before = entry.table.get(entry.name), entry.stand_in
        if now is before:
            continue
        if now is None or now.shape != before.shape or now.dtype != before.dtype:
            raise CaptureError(
                f"the step replaces the buffer {entry.path!r} of shape {list(before.shape)} by "
                f"{'none' if now is None else f'one of {list(now.shape)}'}: "
                "a captured step has fixed shapes, so keep the buffer's shape"
            )
        if now.untyped_storage()._cdata in stand_ins:  # two buffers that change places: neither may be written first
            now = now.detach().clone()
        found.append((before, now))
    return found


def _write_replaced_buffers(replaced: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write the new values into the buffers that were there."""
    with torch.no_grad():
        for before, now in replaced:
            before.copy_(now.detach())


def _refuse_backward(own: Mapping[str, Tensor], line: str) -> None:
    """A backward of the loss function's own leaves gradients that eager would add to the step's."""
    if any(tensor.grad is not None for tensor in own.values()):
        raise CaptureError(
            f"{line}: the loss function calls .backward() itself, and leaves gradients in the parameters: use "
            "torch.autograd.grad, or clear them with model.zero_grad() behind it"
        )


def _refuse_kept(kept: Sequence[Filling], line: str) -> None:
    """A function that keeps random numbers, or what was made from the model or the batch, keeps those of one step."""
    mode = get_proxy_mode()
    assert mode is not None, "a trace works inside make_fx only"
    for filling in kept:
        slots = [get_proxy_slot(x, mode.tracer, None) for x in filling.tensors]
        nodes = [slot.proxy.node for slot in slots if slot is not None]
        seen: set[fx.Node] = set()
        while nodes:
            node = nodes.pop()
            if node.op == "placeholder" or is_random(node.target):
                raise CaptureError(
                    f"{line}: {filling.function.__name__}() keeps a tensor of its first call (lru_cache) that is made "
                    "from random numbers, the model or the batch, which a captured step would make anew: call it once "
                    "before train_step, or take the cache away"
                )
            nodes += [x for x in node.all_input_nodes if x not in seen]
            seen.update(node.all_input_nodes)


def _refuse_checkpoint(line: str) -> None:
    if line:
        raise CaptureError(
            f"{line}: torch.utils.checkpoint is in use, but lowtide decides itself what to recompute: "
            "switch checkpointing off, for Hugging Face models with model.gradient_checkpointing_disable()"
        )
