"""Optimizers that stand around another one: who only passes its calls on is looked through, anybody else is refused."""

from typing import Any

from torch.optim import Optimizer

from lowtide.errors import CaptureError
from lowtide.tracing.source import user_line

_THIN = {"AcceleratedOptimizer": "optimizer", "LightningOptimizer": "_optimizer", "_FabricOptimizer": "_optimizer"}
"""Classes that leave the update to the optimizer inside, and where they hold it."""
_SCALERS = (("scaler",), ("_strategy", "precision_plugin", "scaler"), ("_strategy", "precision", "scaler"))
"""Where they hold what scales the loss and skips steps, if anything does."""


def unwrapped(optimizer: Any) -> Any:
    """The optimizer that does the update; refused where something around it changes the update."""
    names = {c.__name__ for c in type(optimizer).__mro__}
    inside = next((attribute for name, attribute in _THIN.items() if name in names), None)
    if inside is None:
        return optimizer if isinstance(optimizer, Optimizer) else _refused(optimizer)
    held, kind = getattr(optimizer, inside, None), type(optimizer).__name__
    if not isinstance(held, Optimizer) or optimizer.param_groups is not held.param_groups:
        raise CaptureError(f"{user_line()}: {kind} stands around an optimizer with other parameters: give that one")
    if any(_at(optimizer, path) is not None for path in _SCALERS):
        raise CaptureError(
            f"{user_line()}: {kind} scales the loss and leaves out steps that overflow, which a captured step cannot: "
            "train in bfloat16 instead of float16"
        )
    every = getattr(getattr(optimizer, "gradient_state", None), "num_steps", 1)
    if every > 1:
        raise CaptureError(
            f"{user_line()}: {kind} moves the parameters at every {every}th call: give accumulate={every} to "
            f"train_step and the optimizer inside, optimizer.{inside}"
        )
    return unwrapped(held)


def _refused(optimizer: object) -> object:
    """Anything else that holds an optimizer: nobody knows what it does to the update."""
    held = (name for name in ("optimizer", "_optimizer") if isinstance(getattr(optimizer, name, None), Optimizer))
    inside = next(held, None)
    if inside is not None:
        raise CaptureError(
            f"{user_line()}: {type(optimizer).__name__} stands around an optimizer and decides itself when that one "
            f"steps: give the one inside, optimizer.{inside}"
        )
    return optimizer


def _at(value: object, path: tuple[str, ...]) -> object:
    for name in path:
        value = getattr(value, name, None)
    return value
