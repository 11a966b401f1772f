"""Whose update an optimizer does: one of torch's, which is known, or somebody else's, which is not."""

from functools import cache
from inspect import getattr_static
from types import FunctionType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

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
# What a subclass of them may have of its own and still update as they do.
_NO_PART_OF_THE_UPDATE = {
    *("__init__", "__repr__", "__doc__", "__module__", "__annotations__", "__dict__", "__weakref__"),
    *("zero_grad", "state_dict", "load_state_dict", "add_param_group"),
}
# torch puts this around `step` of every class that it makes an optimizer of, also of subclasses.
_HOOKING = Optimizer.profile_hook_step(lambda: None).__code__


def torch_class(optimizer: Optimizer) -> type[Optimizer] | None:
    """The class of torch's whose update this is: the optimizer's own, or one that its class leaves the update to."""
    base = _torch_class(type(optimizer))  # type: ignore[arg-type]  # mypy takes the class for one of its objects
    step = vars(optimizer).get("step")
    if base is None or step is None:
        return base
    # A scheduler of learning rates puts this around the step, to see whether it was called; anybody else means more.
    inside = "__wrapped__" if getattr(step, "_wrapped_by_lr_sched", False) else "__func__"
    return base if _bare(getattr(step, inside, None)) is _bare(base.step) else None


@cache
def _torch_class(cls: type[Optimizer]) -> type[Optimizer] | None:
    base = next((c for c in cls.__mro__ if c in _INDEPENDENT), None)
    if base is None or base is cls:
        return base
    taking_part = [name for name in dir(base) if name not in _NO_PART_OF_THE_UPDATE]
    same = (_bare(getattr_static(cls, name)) is _bare(getattr_static(base, name)) for name in taking_part)
    return base if all(same) else None


def _bare(function: object) -> object:
    """Without what torch has put around it."""
    while isinstance(function, FunctionType) and function.__code__ is _HOOKING:
        function = function.__wrapped__  # type: ignore[attr-defined]
    return function


def step_hooks(optimizer: Optimizer) -> tuple[dict[int, Any], ...]:
    """The tables of hooks that run with a step; some optimizers are made without tables of their own."""
    own = (vars(optimizer).get(name) for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))
    return (*(table for table in own if table is not None), _global_optimizer_pre_hooks, _global_optimizer_post_hooks)
