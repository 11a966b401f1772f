"""The optimizer's update as an op of the graph: the user's own optimizer, on some of its parameters."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from lowtide.graph.dispatch import as_the_user

# torch's optimizers whose update of one parameter reads nothing of another's.
_INDEPENDENT = {
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.ASGD,
    torch.optim.Rprop,
}


class Split(StrEnum):
    """How far a step of an optimizer can be taken apart without changing what it does."""

    PARAMETER = "parameter"
    GROUP = "group"
    WHOLE = "whole"


def split_of(optimizer: Optimizer) -> Split:
    """One op per parameter where that is what eager does; per group for the foreach form, whose temporaries are of all
    parameters of a group at once; one op in all where hooks or code of others want to see the step as a whole."""
    hooked = (
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
    )
    if type(optimizer) not in _INDEPENDENT or hooked:
        return Split.WHOLE
    if any(_is_foreach(group) for group in optimizer.param_groups):
        return Split.GROUP
    return Split.PARAMETER


def _is_foreach(group: dict[str, object]) -> bool:
    if group.get("foreach") is not None:
        return bool(group["foreach"])
    if group.get("fused"):
        return False
    params = group["params"]
    assert isinstance(params, list)
    return any(p.device.type != "cpu" for p in params)


def describe(optimizer: Optimizer) -> str:
    """`Adam, fused` or `SGD, for-loop, momentum 0.9`: for reports."""
    group = optimizer.param_groups[0]
    words = [type(optimizer).__name__]
    if type(optimizer) in _INDEPENDENT:
        words.append("fused" if group.get("fused") else "foreach" if _is_foreach(group) else "for-loop")
    if group.get("momentum"):
        words.append(f"momentum {group['momentum']}")
    return ", ".join(words)


def parts(optimizer: Optimizer, updated: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters with a gradient (`updated`) that one update op takes together, in the optimizer's order."""
    wanted = {id(p) for p in updated}
    groups = [[p for p in group["params"] if id(p) in wanted] for group in optimizer.param_groups]
    match split_of(optimizer):
        case Split.PARAMETER:
            yield from ([p] for group in groups for p in group)
        case Split.GROUP:
            yield from (group for group in groups if group)
        case Split.WHOLE:
            yield [p for group in groups for p in group]


Kept = list[tuple[Tensor, Tensor]]


def update(
    optimizer: Optimizer, parameters: Sequence[Tensor], gradients: Sequence[Tensor], keep: Kept | None = None
) -> None:
    """One `optimizer.step()` that moves `parameters` only: optimizers pass over parameters without a gradient.

    The gradients are gone afterwards, unless `keep` takes them.
    """
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    try:
        with as_the_user():
            optimizer.step()
    finally:
        for parameter in parameters:
            parameter.grad = None
    if keep is not None:
        keep.extend(zip(parameters, gradients, strict=True))


def state_tensors(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """The optimizer's tensors for `parameter`, by name."""
    state = optimizer.state.get(parameter, {})
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}


def expected_state(optimizer: Optimizer, parameter: Tensor) -> dict[str, int]:
    """Bytes of state that the optimizer holds for `parameter`, or will hold after its first step.

    For a fresh optimizer of torch's own the same class takes one step on a tiny stand-in; what it makes in the
    parameter's shape will be of the parameter's size. Of other fresh optimizers nothing is known before they run.
    """
    there = state_tensors(optimizer, parameter)
    if there:
        return {name: tensor.untyped_storage().nbytes() for name, tensor in there.items()}
    if type(optimizer) not in _INDEPENDENT:
        return {}
    group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    stand_in = torch.zeros([2] * max(parameter.dim(), 1), dtype=parameter.dtype, requires_grad=True)
    stand_in.grad = torch.zeros_like(stand_in)
    settings = {k: v for k, v in group.items() if k not in ("params", "initial_lr")}
    with torch.enable_grad():
        rehearsal = type(optimizer)([{"params": [stand_in], **settings}], lr=1e-3)  # type: ignore[call-arg]
        rehearsal.step()
    return {
        name: parameter.numel() * tensor.element_size()
        if tensor.shape == stand_in.shape
        else tensor.untyped_storage().nbytes()
        for name, tensor in state_tensors(rehearsal, stand_in).items()
    }
