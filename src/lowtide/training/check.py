"""`lowtide.check`: are loss, gradients and buffers of a step those of the same code in eager? Nothing is changed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer

from lowtide.device.swap.space import bytes_of
from lowtide.errors import EagerMismatch
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Ledger, Micro, same_bits
from lowtide.tracing.loss import Loss
from lowtide.training.sentinel import digest, first_difference, gradient_digests, loss_of, nothing_changes
from lowtide.training.undo import changed_buffers


@dataclass(frozen=True)
class Checked:
    """What was compared and found equal."""

    loss: float
    gradients: int
    buffers: int

    def __str__(self) -> str:
        return f"equal to eager: the loss, {self.gradients} gradients, {self.buffers} buffers"


def check_step(
    step: StepGraph, captured: StepGraph, loss: Loss, batch: Any, *, on_disk: bool, space: Any = None
) -> Checked:
    """Run `step` and the user's eager code from the same state and compare; EagerMismatch names what differs.

    With `on_disk` what eager saves for backward waits in a file, so that a step which fits only with a plan can be
    checked in the memory that it has.
    """
    names = {id(t): n.meta["lowtide_name"] for n, t in zip(step.graph.nodes, step.residents, strict=False)}
    ours: dict[int, bytes] = {}
    theirs: dict[int, bytes] = {}
    buffers = changed_buffers(step)
    trained = [p for p in step.residents if p.is_leaf and p.requires_grad]
    before = [p.grad for p in trained]
    try:
        for p in trained:
            p.grad = None
        with nothing_changes(captured, batch):
            result = step.run(
                step.form.tensors(batch), Ledger(step.optimizer, seen=gradient_digests(ours), space=space)
            )
            our_loss = loss_of(result)
            our_buffers = [digest(b) for b in buffers]
            if step.ending.micro is Micro.FIRST:
                ours.update({id(p): digest(p.grad) for p in trained if p.grad is not None})
                for p in trained:
                    p.grad = None
        with nothing_changes(captured, batch), _gradients_of(trained, theirs), torch.enable_grad():
            with _saved_on_disk() if on_disk else _as_ever():
                eager = loss_of(loss(step.model, batch))
                eager.backward()
            their_buffers = [digest(b) for b in buffers]
    finally:
        for p, gradient in zip(trained, before, strict=True):
            p.grad = gradient
    if not same_bits(our_loss, eager.detach()):
        where = first_difference(captured, step.model, loss, batch)
        raise EagerMismatch(
            f"the step's loss is {float(our_loss)!r}, eager's {float(eager)!r}; the first that differs is {where}: "
            "do not train with this, and please report it"
        )
    held = set(ours)  # parameters that the optimizer does not hold are not the step's to move
    wrong = [names[p] for p in theirs if p in held and ours[p] != theirs[p]]
    wrong += [names[p] for p in held - theirs.keys()]
    stale = [str(names[id(b)]) for b, a, c in zip(buffers, our_buffers, their_buffers, strict=True) if a != c]
    if wrong or stale:
        raise EagerMismatch(
            f"the loss is equal to eager's, but {_some('gradients', wrong, len(held))}"
            f"{_some('buffers', stale, len(buffers))} differ: do not train with this, and please report it"
        )
    return Checked(float(our_loss), len(held), len(buffers))


def _some(what: str, names: list[str], of: int) -> str:
    if not names:
        return ""
    return f"{len(names)} of {of} {what} ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''}) "


@contextmanager
def _gradients_of(parameters: list[Tensor], into: dict[int, bytes]) -> Iterator[None]:
    """Digest each gradient as soon as it is complete, and drop it."""

    def complete(p: Tensor) -> None:
        assert p.grad is not None
        into[id(p)] = digest(p.grad)
        p.grad = None

    hooks = [p.register_post_accumulate_grad_hook(complete) for p in parameters]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _as_ever() -> Iterator[None]:
    yield


@contextmanager
def _saved_on_disk() -> Iterator[None]:
    """What autograd saves waits in an unlinked file; parameters are not copied."""
    with tempfile.TemporaryFile(prefix=".lowtide-") as file:

        def pack(x: Tensor) -> Any:
            if isinstance(x, nn.Parameter) or x.layout is not torch.strided or x.numel() < 1024:
                return x
            dense = torch.empty_like(x).copy_(x)  # keeps the strides of what is dense
            where = file.tell()
            data = bytes_of(dense.cpu()).numpy()
            file.write(data.data)
            file.flush()
            return where, data.nbytes, dense.dtype, tuple(dense.shape), dense.stride(), dense.device

        def unpack(held: Any) -> Tensor:
            if isinstance(held, Tensor):
                return held
            where, size, dtype, shape, stride, device = held
            raw = torch.frombuffer(bytearray(os.pread(file.fileno(), size, where)), dtype=torch.uint8)
            return raw.view(dtype).as_strided(shape, stride).to(device)

        with saved_tensors_hooks(pack, unpack):
            yield


def check(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None = None,
    *,
    budget: int | str | None = None,
    side_effects: str = "refuse",
) -> Checked:
    """Is training with lowtide equal to eager training here? Run it first on a new model or machine.

    One step is captured (with a `budget` also planned) and run beside your own eager code from the same state; loss,
    every gradient and every buffer must be equal bit for bit. Nothing moves: parameters, buffers, optimizer and
    generators end as they were. A difference raises EagerMismatch and says where.
    """
    from lowtide.training.train_step import train_step

    step = train_step(model, optimizer, batch, loss, budget=budget, side_effects=side_effects, sentinel=False)
    return step.check(batch)
