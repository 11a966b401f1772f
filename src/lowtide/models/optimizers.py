"""The optimizers that the command line offers, each in its fastest form."""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer

from lowtide.errors import InputError

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr, fused=True),
    "momentum": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9, fused=True),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr, fused=True),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr, fused=True),
    "rmsprop": lambda parameters, lr: torch.optim.RMSprop(parameters, lr, foreach=True),
    "adagrad": lambda parameters, lr: torch.optim.Adagrad(parameters, lr, fused=True),
}


def make_optimizer(name: str, model: nn.Module, lr: float) -> Optimizer:
    """The optimizer `name` over all parameters of `model`."""
    if name not in OPTIMIZERS:
        raise InputError(f"unknown optimizer {name!r}: write one of {', '.join(OPTIMIZERS)}")
    if not math.isfinite(lr) or lr <= 0:
        raise InputError(f"the learning rate must be a number above 0, not {lr}")
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise InputError(f"{type(model).__name__} has no trainable parameter: nothing to optimize")
    return OPTIMIZERS[name](trainable, lr)
