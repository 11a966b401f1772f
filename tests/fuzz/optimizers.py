"""torch's optimizers with their options, in each of the ways in which they can run."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tests.fuzz.kinds import Pick

_FUSED = {"sgd", "adam", "adamw", "adagrad"}


def _sgd(pick: Pick) -> dict[str, Any]:
    momentum = pick("momentum", 0.0, 0.9)
    return {"momentum": momentum, "nesterov": momentum > 0 and pick("nesterov", False, True)}


def _adam(pick: Pick) -> dict[str, Any]:
    return {"amsgrad": pick("amsgrad", False, False, True), "betas": pick("betas", (0.9, 0.999), (0.8, 0.95))}


def _rmsprop(pick: Pick) -> dict[str, Any]:
    return {"centered": pick("centered", False, True), "momentum": pick("momentum", 0.0, 0.9)}


def _nothing(pick: Pick) -> dict[str, Any]:
    return {}


_MAKERS: dict[str, tuple[Callable[..., Optimizer], Callable[[Pick], dict[str, Any]]]] = {
    "sgd": (torch.optim.SGD, _sgd),
    "adam": (torch.optim.Adam, _adam),
    "adamw": (torch.optim.AdamW, _adam),
    "rmsprop": (torch.optim.RMSprop, _rmsprop),
    "adagrad": (torch.optim.Adagrad, _nothing),
    "adamax": (torch.optim.Adamax, _nothing),
    "nadam": (torch.optim.NAdam, _nothing),
    "radam": (torch.optim.RAdam, _nothing),
    "adadelta": (torch.optim.Adadelta, _nothing),
    "asgd": (torch.optim.ASGD, _nothing),
    "rprop": (torch.optim.Rprop, _nothing),
}
OPTIMIZERS = tuple(_MAKERS)


def build_optimizer(name: str, model: nn.Module, pick: Pick) -> Optimizer:
    """The optimizer called `name` over the model's parameters, perhaps in two groups."""
    make, options = _MAKERS[name]
    given = options(pick)
    given["lr"] = pick("lr", 1e-3, 1e-2)
    if name != "rprop":
        given["weight_decay"] = pick("weight_decay", 0.0, 0.0, 0.1)
    given["maximize"] = pick("maximize", False, False, False, True)
    way = pick("way", "default", "foreach", "for-loop", *(["fused"] if name in _FUSED else []))
    if way != "default":
        given["fused" if way == "fused" else "foreach"] = way != "for-loop"
    parameters = list(model.parameters())
    if len(parameters) > 1 and pick("groups", 1, 1, 2) == 2:
        half = len(parameters) // 2
        groups = [{"params": parameters[:half]}, {"params": parameters[half:], "lr": 2e-3}]
        return make(groups, **given)
    return make(parameters, **given)
