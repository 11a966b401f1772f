"""The optimizer's update as an op of the graph: the user's own optimizer, on some of its parameters."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from lowtide.errors import EagerMismatch
from lowtide.kernels.dispatch import as_the_user
from lowtide.kernels.shards import as_gradient, is_sharded, local, whole
from lowtide.kernels.swap import Space
from lowtide.optimizer.torch_optimizers import step_hooks, torch_class


class Micro(StrEnum):
    """Which part of an accumulation a step is: gradients of several calls add up before the parameters move."""

    ONLY = "only"
    """There is no accumulation: one call is one whole step."""
    FIRST = "first"
    """Leaves its gradients in `.grad`."""
    NEXT = "next"
    """Adds its gradients to those in `.grad`."""
    LAST = "last"
    """Adds its gradients, then the parameters move."""


@dataclass(frozen=True, slots=True)
class UpdateForm:
    """How a step ends."""

    micro: Micro = Micro.ONLY
    clip: float | None = None
    """The norm that all gradients together are clipped to before the parameters move."""
    keep: bool = False
    """Do the gradients stay when the parameters have moved?"""

    @property
    def moves(self) -> bool:
        """Do the parameters move?"""
        return self.micro in (Micro.ONLY, Micro.LAST)

    @property
    def adds(self) -> bool:
        """Are there gradients of earlier calls?"""
        return self.micro in (Micro.NEXT, Micro.LAST)


def is_separable(optimizer: Optimizer) -> bool:
    """Can each parameter be updated on its own without changing what the optimizer does? Not where hooks or code of
    others want to see the step as a whole."""
    return torch_class(optimizer) is not None and not any(step_hooks(optimizer))


def is_foreach(optimizer: Optimizer | None) -> bool:
    """Does it, at least in one group, make the temporaries of all parameters at once?"""
    return optimizer is not None and any(_is_foreach(group) for group in optimizer.param_groups)


def _is_foreach(group: dict[str, object]) -> bool:
    """As torch decides where nobody did: it takes foreach off the CPU, unless the optimizer shall be differentiable."""
    if group.get("foreach") is not None:
        return bool(group["foreach"])
    if group.get("fused") or group.get("differentiable"):
        return False
    params = group["params"]
    assert isinstance(params, list)
    return all(p.device.type != "cpu" for p in params)


def describe(optimizer: Optimizer | None) -> str:
    """`Adam, fused` or `SGD, for-loop, momentum 0.9`: for reports."""
    if optimizer is None:
        return "no optimizer"
    group = optimizer.param_groups[0]
    words = [type(optimizer).__name__]
    if torch_class(optimizer) is not None:
        words.append("fused" if group.get("fused") else "foreach" if _is_foreach(group) else "for-loop")
    if group.get("momentum"):
        words.append(f"momentum {group['momentum']}")
    return ", ".join(words)


def parts(optimizer: Optimizer, updated: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters with a gradient (`updated`) that one update op takes together, in the optimizer's order."""
    wanted = {id(p) for p in updated}
    held = [p for group in optimizer.param_groups for p in group["params"] if id(p) in wanted]
    if is_separable(optimizer):
        yield from ([p] for p in held)
    elif held:
        yield held


Kept = list[tuple[Tensor, Tensor]]


@dataclass
class Ledger:
    """The optimizer in one run of a step: which parameters it has moved so far, and who wants to see the gradients."""

    optimizer: Optimizer | None
    """None where a step has no updates."""
    keep: Kept | None = None
    """Takes the gradients, which are dropped otherwise."""
    moved: list[Tensor] = field(default_factory=list)
    moving: Sequence[Tensor] = ()
    """Parameters that are being moved at the moment."""
    norm: Tensor | None = None
    """Of all gradients together, before they were clipped."""
    space: Space | None = None
    """Where values go that leave the device, for steps that swap."""
    expected: Tensor | Exception | None = None
    """The loss that eager computes, or how it failed, where that is to be compared before anything moves."""
    seen: Callable[[Sequence[Tensor], Sequence[Tensor]], None] | None = None
    """Takes parameters and their gradients instead of the optimizer: nothing moves."""
    around: Callable[[Callable[[], object]], None] | None = None
    """Calls each `optimizer.step()`, to measure it."""
    _group: dict[int, int] = field(default_factory=dict)
    _owners: dict[int, Tensor] = field(default_factory=dict)

    def loss_is(self, loss: Tensor) -> None:
        """The loss is known; no parameter has moved yet."""
        if isinstance(self.expected, Exception):
            raise self.expected
        if self.expected is not None and not same_bits(loss, self.expected):
            raise EagerMismatch(
                f"the step's loss is {float(loss)!r}, that of the same code in eager is {float(self.expected)!r}"
            )

    def own(self, held: Sequence[Tensor]) -> list[Tensor]:
        """The optimizer's own parameters, of which the program has what this rank holds."""
        assert self.optimizer is not None, "a step without an optimizer has no updates"
        if not self._owners:
            self._owners = {id(local(p)): p for group in self.optimizer.param_groups for p in group["params"]}
        return [self._owners.get(id(tensor), tensor) for tensor in held]

    def holds(self, parameter: Tensor) -> bool:
        """Is it the optimizer's to move? Of others the gradient adds up in `.grad`, as after every backward."""
        assert self.optimizer is not None, "a step without an optimizer has no updates"
        if not self._group:
            self._group = {id(p): k for k, group in enumerate(self.optimizer.param_groups) for p in group["params"]}
        return id(parameter) in self._group

    def step(self) -> None:
        """One `optimizer.step()`."""
        assert self.optimizer is not None, "a step without an optimizer has no updates"
        if self.around is None:
            self.optimizer.step()
        else:
            self.around(self.optimizer.step)

    @contextmanager
    def only(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        """Show the optimizer `parameters` alone: it would pass over the others anyway, one by one."""
        assert self.optimizer is not None, "a step without an optimizer has no updates"
        groups = self.optimizer.param_groups
        if len(parameters) == len(self._group) or not is_separable(self.optimizer):
            yield
            return
        shown: list[list[Tensor]] = [[] for _ in groups]
        for parameter in parameters:
            shown[self._group[id(parameter)]].append(parameter)
        everything = [group["params"] for group in groups]
        try:
            for group, some in zip(groups, shown, strict=True):
                group["params"] = some
            yield
        finally:
            for group, all_ in zip(groups, everything, strict=True):
                group["params"] = all_


def update(
    ledger: Ledger,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    add: bool = False,
    move: bool = True,
    clip: tuple[float, int] | None = None,
) -> None:
    """One `optimizer.step()` that moves `parameters` only: optimizers pass over parameters without a gradient.

    The gradients are gone afterwards, unless the ledger keeps them. With `add` they are added to what `.grad` holds;
    without `move` that is all, and for parameters that the optimizer does not hold it is so anyway. `clip` gives a norm
    and how many of the parameters it is taken over.
    """
    parameters = ledger.own(parameters)
    if ledger.seen is not None:
        ledger.seen(parameters, gradients)
        return
    if any(map(is_sharded, parameters)):
        with as_the_user(), torch.no_grad():
            gradients = [as_gradient(p, g) for p, g in zip(parameters, gradients, strict=True)]
    mine = [p for p in parameters if ledger.holds(p)]
    if len(mine) < len(parameters):
        ledger.moved.extend(p for p in parameters if not ledger.holds(p))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if parameter.grad is not None and (add or not ledger.holds(parameter)):
            local(parameter.grad).add_(local(gradient))
        else:
            parameter.grad = gradient
    if not move or not mine:
        return
    ledger.moving = mine
    kept = [(p, p.grad) for p in mine if p.grad is not None] if ledger.keep is not None else []
    try:
        with as_the_user():
            if clip is not None:
                ledger.norm = whole(clip_grad_norm_(parameters[: clip[1]], clip[0]))
            with ledger.only(mine):
                ledger.step()
    finally:
        for parameter in mine:
            parameter.grad = None
    ledger.moving = ()
    ledger.moved.extend(mine)
    if ledger.keep is not None:
        ledger.keep.extend(kept)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal to the last bit, nan included."""
    return torch.equal(a, b) or (a.shape == b.shape and a.dtype == b.dtype and _bytes(a) == _bytes(b))


def _bytes(x: Tensor) -> bytes:
    return x.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def state_tensors(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """The optimizer's tensors for `parameter`, by name; of sharded ones the shard."""
    state = optimizer.state.get(parameter, {})
    return {str(key): local(value) for key, value in state.items() if isinstance(value, Tensor)}


def expected_state(optimizer: Optimizer, parameter: Tensor) -> dict[str, int]:
    """Bytes of state that the optimizer holds for `parameter` on its device, or will hold after its first step.

    For a fresh optimizer of torch's own the same class takes one step on a tiny stand-in; what it makes in the
    parameter's shape will be of the parameter's size. The stand-in is on the parameter's device: capturable and fused
    optimizers refuse others, and count their steps there. Of other fresh optimizers nothing is known before they run.
    """
    there = state_tensors(optimizer, parameter)
    if there:
        return {
            name: tensor.untyped_storage().nbytes()
            for name, tensor in there.items()
            if tensor.device == parameter.device
        }
    kind = torch_class(optimizer)
    if kind is None:
        return {}
    group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    size = [2] * max(parameter.dim(), 1)
    stand_in = torch.zeros(size, dtype=parameter.dtype, device=parameter.device, requires_grad=True)
    stand_in.grad = torch.zeros_like(stand_in)
    settings = {k: v for k, v in group.items() if k not in ("params", "initial_lr")}
    with torch.enable_grad():
        rehearsal = kind([{"params": [stand_in], **settings}], lr=1e-3)  # type: ignore[call-arg]
        rehearsal.step()
    return {
        name: local(parameter).numel() * tensor.element_size()
        if tensor.shape == stand_in.shape
        else tensor.untyped_storage().nbytes()
        for name, tensor in state_tensors(rehearsal, stand_in).items()
        if tensor.device == parameter.device
    }
