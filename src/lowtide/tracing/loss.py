"""The loss where the user gives none, and what is no loss function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lowtide.errors import CaptureError, shortened, shown
from lowtide.tracing.source import user_line

Loss = Callable[[nn.Module, Any], Any]
_RECIPE = "loss=lambda model, batch: criterion(model(batch[{}]), batch[{}])"
_TARGETS = {"target", "targets", "label", "labels", "y", "y_true", "truth"}


def model_loss(model: nn.Module, batch: Any) -> Any:
    """The loss where the user gives none: what the model itself returns."""
    if isinstance(batch, Tensor):
        output = model(batch)
    elif isinstance(batch, Mapping):
        output = _called(model, (), batch, "model(**batch)")
    elif isinstance(batch, Sequence) and not isinstance(batch, str):
        output = _called(model, batch, {}, "model(*batch)")
    else:
        raise CaptureError(
            f"{user_line()}: a batch must be a mapping, a sequence or a tensor, not {type(batch).__name__}: "
            "give one of these, or loss=function(model, batch)"
        )
    if isinstance(output, Tensor):
        return output
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        raise CaptureError(
            f"{user_line()}: {type(model).__name__} returned {type(output).__name__} without a loss: "
            "put the labels into the batch, or give loss=function(model, batch)"
        )
    return loss


def loss_and_rest(returned: Any) -> tuple[Any, Any]:
    """The loss in what a loss function returned, and what stands beside it: the rest of a tuple, or a dict in which
    nothing stands for the loss."""
    if isinstance(returned, Mapping) and "loss" in returned:
        return returned["loss"], {key: None if key == "loss" else value for key, value in returned.items()}
    if isinstance(returned, tuple | list) and returned:
        return returned[0], tuple(returned[1:])
    return returned, ()


def _called(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], how: str) -> Any:
    """The model's output; where forward takes other arguments than the batch has, an error that says how to go on."""
    try:
        return model(*args, **kwargs)
    except TypeError:
        if _takes(model.forward, args, kwargs):
            raise
    keys = [shown(key) for key in kwargs]
    has = f"the keys {', '.join(keys)}" if keys else f"{len(args)} entries"
    places = [*keys, "..."] if keys else [0, 1]
    raise CaptureError(
        f"{user_line()}: without a loss function the batch is passed as {how}, but it has {shortened(has, 200)} and "
        f"{type(model).__name__}.forward takes {inspect.signature(model.forward)}: give {_RECIPE.format(*places)}"
    )


def _takes(forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(forward).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def refuse_criterion(loss: object, where: str) -> None:
    """Refuse what compares predictions with targets where a function of the model and the batch is wanted."""
    if loss is None:
        return
    name = getattr(loss, "__name__", type(loss).__name__)
    if not callable(loss):
        raise CaptureError(
            f"{where}: the loss must be a function of (model, batch), not {name}: give {_RECIPE.format(0, 1)}"
        )
    if _is_criterion(loss):
        raise CaptureError(
            f"{where}: {name} compares an output with a target, but the loss is called as loss(model, batch): "
            f"give {_RECIPE.format(0, 1)}"
        )


def _is_criterion(loss: Callable[..., Any]) -> bool:
    if isinstance(loss, type):
        return issubclass(loss, nn.Module)
    if not isinstance(loss, nn.Module):
        return getattr(loss, "__module__", None) == "torch.nn.functional"
    if type(loss).__module__ == "torch.nn.modules.loss":
        return True
    names = list(inspect.signature(loss.forward).parameters)
    return len(names) > 1 and names[0] != "model" and names[1] in _TARGETS
