"""What users change between two steps: values, modes, hooks, parameters, optimizer settings, flags of torch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks

from tests.equality import LossFunction, Trained
from tests.fuzz.kinds import Pick
from tests.fuzz.knobs import KNOBS, Knob


@dataclass
class Side:
    """One of the two trainings: eager's or lowtide's."""

    trained: Trained
    loss: LossFunction
    knob: Knob | None
    lines: tuple[str, ...]
    """The program as text."""
    undo: Callable[[], Any] | None = None
    """Takes back what a change did."""

    @property
    def model(self) -> nn.Module:
        return self.trained.model


Change = Callable[[Side, Pick], Callable[[], Any]]
"""Changes a side, and returns what takes the change back."""


def turn_knob(side: Side, pick: Pick) -> Callable[[], Any]:
    """Another value where a knob keeps it."""
    assert side.knob is not None
    knob = side.knob
    knob.turn(pick("value", 0.25, 0.5))
    return lambda: knob.turn(1.0)


def _modules(side: Side) -> list[nn.Module]:
    return [module for module in side.model.modules() if module is not side.model]


def eval_of_a_module(side: Side, pick: Pick) -> Callable[[], Any]:
    module = pick("module", *enumerate(_modules(side)))[1]
    module.train(not module.training)
    return lambda: module.train(not module.training)


def eval_of_the_model(side: Side, pick: Pick) -> Callable[[], Any]:
    side.model.eval()
    return side.model.train


def dropout_probability(side: Side, pick: Pick) -> Callable[[], Any]:
    found = [(m, m.p) for m in side.model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    for module, _ in found:
        module.p = 0.6

    def back() -> None:
        for module, p in found:
            module.p = p

    return back


def hook(side: Side, pick: Pick) -> Callable[[], Any]:
    how = pick("how", "forward", "pre", "full_backward", "parameter", "accumulate", "global", "output_tensor", "reads")
    module: Any = pick("module", *enumerate(_modules(side)))[1]
    parameter = next(p for p in side.model.parameters() if p.requires_grad)
    seen: list[Any] = []

    def scale(*arguments: Any) -> Any:
        return arguments[-1] * 0.5 if isinstance(arguments[-1], Tensor) else None

    def listen(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda gradient: gradient * 0.5)

    if how == "forward":
        return module.register_forward_hook(scale).remove  # type: ignore[no-any-return]
    if how == "pre":
        return module.register_forward_pre_hook(lambda m, xs: (xs[0] * 0.5, *xs[1:]) if _real(xs) else None).remove  # type: ignore[no-any-return]
    if how == "full_backward":
        return module.register_full_backward_hook(lambda m, gi, go: None).remove  # type: ignore[no-any-return]
    if how == "parameter":
        return parameter.register_hook(lambda gradient: gradient * 0.5).remove  # type: ignore[no-any-return]
    if how == "accumulate":
        return parameter.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5)).remove  # type: ignore[no-any-return]
    if how == "output_tensor":
        return module.register_forward_hook(listen).remove  # type: ignore[no-any-return]
    if how == "reads":
        return module.register_forward_hook(lambda m, xs, out: seen.append(out)).remove  # type: ignore[no-any-return]
    return _global_hook(side).remove  # type: ignore[no-any-return]


def _real(inputs: Any) -> bool:
    return bool(inputs) and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point()


def _global_hook(side: Side) -> Any:
    """Halves the output of this side's head alone: the hook of the other side is alive as well."""
    head: Any = side.model.head
    return module_hooks.register_module_forward_hook(lambda m, xs, out: out * 0.5 if m is head else None)


def requires_grad(side: Side, pick: Pick) -> Callable[[], Any]:
    parameters = list(side.model.parameters())
    chosen = parameters[pick("parameter", *range(len(parameters)))]
    before = chosen.requires_grad
    chosen.requires_grad_(not before)
    return lambda: chosen.requires_grad_(before)


def optimizer_setting(side: Side, pick: Pick) -> Callable[[], Any]:
    groups = side.trained.optimizer.param_groups
    settings = {"lr": 0.005, "weight_decay": 0.2, "momentum": 0.7, "nesterov": True, "eps": 1e-5, "betas": (0.7, 0.9)}
    name = pick("name", *sorted(settings.keys() & groups[0].keys()), "lr")
    before = [group[name] for group in groups]
    for group in groups:
        group[name] = settings[name]

    def back() -> None:
        for group, value in zip(groups, before, strict=True):
            group[name] = value

    return back


def weights(side: Side, pick: Pick) -> Callable[[], Any]:
    how = pick("how", "in_place", "load_state_dict", "data", "new_parameter", "optimizer_state")
    parameter = next(p for p in side.model.parameters() if p.requires_grad)
    if how == "in_place":
        with torch.no_grad():
            parameter.mul_(0.9)
    elif how == "data":
        parameter.data = parameter.data * 0.9
    elif how == "load_state_dict":
        side.model.load_state_dict({key: value.clone() for key, value in side.model.state_dict().items()})
    elif how == "optimizer_state":
        side.trained.optimizer.load_state_dict(side.trained.optimizer.state_dict())
    else:
        _replace(side, parameter)
    return lambda: None


def _replace(side: Side, parameter: nn.Parameter) -> None:
    """The parameter is another object from now on, in the model and in the optimizer."""
    new = nn.Parameter(parameter.detach() * 0.9)
    for module in side.model.modules():
        for name, held in list(module._parameters.items()):
            if held is parameter:
                module._parameters[name] = new
    for group in side.trained.optimizer.param_groups:
        group["params"] = [new if held is parameter else held for held in group["params"]]


def module_replaced(side: Side, pick: Pick) -> Callable[[], Any]:
    steps: Any = side.model.steps
    place = pick("place", *range(len(steps)))
    before, steps[place] = steps[place], nn.Sequential(steps[place], nn.Tanh())

    def back() -> None:
        steps[place] = before

    return back


def flags(side: Side, pick: Pick) -> Callable[[], Any]:
    which = pick("which", "mkldnn", "flash_sdp", "math_sdp", "deterministic")
    if which == "mkldnn":
        torch.backends.mkldnn.set_flags(False)
        return lambda: torch.backends.mkldnn.set_flags(True)
    if which == "deterministic":
        torch.use_deterministic_algorithms(True)
        return lambda: torch.use_deterministic_algorithms(False)
    enable: Any = torch.backends.cuda.enable_flash_sdp if which == "flash_sdp" else torch.backends.cuda.enable_math_sdp
    enable(False)
    return lambda: enable(True)


def nothing(side: Side, pick: Pick) -> Callable[[], Any]:
    """The batch changes, and nothing else."""
    return lambda: None


BATCH_CHANGES = ("batch_size", "aliased", "no_longer_aliased", "padded", "length", "strides", "leaf")
KNOB_CHANGES = tuple(f"{knob}_in_{place}" for knob in KNOBS for place in ("model", "loss"))
_OTHERS = (
    eval_of_a_module,
    eval_of_the_model,
    dropout_probability,
    hook,
    requires_grad,
    optimizer_setting,
    weights,
    module_replaced,
    flags,
)
OTHER_CHANGES = tuple(change.__name__ for change in _OTHERS)
CHANGES: dict[str, Change] = {
    **dict.fromkeys(KNOB_CHANGES, turn_knob),
    **dict.fromkeys(BATCH_CHANGES, nothing),
    **dict(zip(OTHER_CHANGES, _OTHERS, strict=True)),
}


@contextmanager
def undone(*sides: Side) -> Iterator[None]:
    """Whatever happens, nothing stays changed in torch or in this package's globals."""
    try:
        yield
    finally:
        for side in sides:
            if side.undo is not None:
                side.undo()
                side.undo = None
