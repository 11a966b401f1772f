"""The user's own eager forward beside a step, now and then: the last line of defence against a silent difference."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as module_hooks
from torch.utils import _pytree as pytree

from lowtide.errors import InputError
from lowtide.graph.program import prepare, store
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.dispatch import below_autograd, grad_mode_of, set_grad_mode
from lowtide.optimizer.update import Ledger
from lowtide.records.vocabulary import Phase
from lowtide.tracing.loss import Loss, loss_and_rest
from lowtide.training.undo import Undo
from lowtide.watching.holders import Holder, TensorForm

GROWS_TO = 1024
"""The distance between two checks doubles up to this many steps."""


@dataclass
class Watched:
    """What the checks of a training have cost so far."""

    checks: int = 0
    seconds: float = 0.0
    peak: int | None = None
    """The most device bytes at once during a check; None where nothing could measure it."""


def check_schedule(sentinel: bool | int) -> Callable[[int], bool]:
    """Is the n-th step, counted from 1, one to check? `sentinel` is False, True (ever less often), or every so many."""
    if sentinel is False or sentinel == 0:
        return lambda n: False
    if sentinel is True:
        return lambda n: n % GROWS_TO == 0 or (n < GROWS_TO and n & (n - 1) == 0)
    if isinstance(sentinel, int) and sentinel > 0:
        return lambda n: n == 1 or n % sentinel == 0
    raise InputError(f"sentinel must be True, False or a number of steps, not {sentinel!r}")


def loss_of(returned: Any) -> Tensor:
    """The loss in what a loss function returned."""
    value, _ = loss_and_rest(returned)
    assert isinstance(value, Tensor)
    return value


def eager_loss(model: nn.Module, loss: Loss, batch: Any, graph: StepGraph) -> Tensor:
    """The loss by the user's own code, from the state that the step will start from; nothing is left changed.

    Nothing is saved for backward, unless the loss itself is made from gradients.
    """
    try:
        with nothing_changes(graph, batch), torch.enable_grad(), saved_tensors_hooks(_drop, _miss):
            return loss_of(loss(model, batch)).detach().clone()
    except (_InnerBackward, RuntimeError) as error:
        if not isinstance(error, _InnerBackward) and "saved tensor hooks" not in str(error):  # torch.func refuses them
            raise
        with nothing_changes(graph, batch), torch.enable_grad():
            return loss_of(loss(model, batch)).detach().clone()


class _InnerBackward(Exception):
    """The loss function runs a backward of its own."""


def _drop(x: Tensor) -> None:
    """Backward will not run."""


def _miss(x: object) -> NoReturn:
    raise _InnerBackward


@contextmanager
def nothing_changes(graph: StepGraph, batch: Any) -> Iterator[None]:
    """Buffers, batch, generator and the Python values that the step knows are put back afterwards; parameters and
    buffers lie where they lay."""
    undo = Undo(graph, batch, on_device=False)
    places = _places(graph)
    memory = [(x, x.data) for x in graph.held]
    try:
        yield
    finally:
        for x, before in memory:
            if x.data_ptr() != before.data_ptr() or x.stride() != before.stride():
                x.data = before
        undo()
        for place in places:
            place.restore()


def _places(graph: StepGraph) -> list[Holder]:
    """What the user's code may change, as it is now."""
    known = [holder for holder in graph.guards.holders if not isinstance(holder, TensorForm)]
    known += [effect.holder for effect in graph.guards.settled]
    now = [(holder, type(holder)(holder.owner, holder.path)) for holder in known]
    for holder, fresh in now:
        fresh.read = set(holder.read)
        for key in holder.before.keys() - fresh.before.keys():
            fresh.before[key] = holder.values_at(key)[1]
    return [fresh for _, fresh in now]


def first_difference(graph: StepGraph, model: nn.Module, loss: Loss, batch: Any) -> str:
    """The module whose output is the first that the graph does not compute; both are run once more, forward only."""
    made: set[bytes] = set()
    with nothing_changes(graph, batch), below_autograd():
        tensors = graph.form.tensors(batch)
        inputs = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        values: dict[str, Any] = dict(zip(inputs, [*graph.held, *tensors], strict=True))
        for op in graph.ops:
            if op.phase is not Phase.FORWARD:
                break
            set_grad_mode(grad_mode_of(op.phase))
            function, args, kwargs = prepare(op, values, Ledger(graph.optimizer))
            result = function(*args, **kwargs)
            store(op, result, values)
            made.update(digest(x) for x in pytree.tree_leaves(result) if isinstance(x, Tensor))
    found: list[str] = []
    paths = {id(module): path for path, module in model.named_modules()}

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        tensors = [x for x in pytree.tree_leaves(output) if isinstance(x, Tensor)]
        if not found and any(digest(x) not in made for x in tensors):
            found.append(f"{type(module).__name__} {paths.get(id(module), '')!r}")

    hook = module_hooks.register_module_forward_hook(leave)
    try:
        eager_loss(model, loss, batch, graph)
    finally:
        hook.remove()
    return f"the output of {found[0]}" if found else "what the loss function itself computes"


def digest(x: Tensor) -> bytes:
    """The bits of a tensor, whatever its shape and strides."""
    flat = x.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.blake2b(flat.numpy().tobytes() + str(x.dtype).encode(), digest_size=16).digest()


Seen = Callable[[Sequence[Tensor], Sequence[Tensor]], None]


def gradient_digests(into: dict[int, bytes]) -> Seen:
    """Takes gradients from a step that is not to move anything, and keeps their digests by parameter."""

    def seen(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        into.update({id(p): digest(g) for p, g in zip(parameters, gradients, strict=True)})

    return seen
