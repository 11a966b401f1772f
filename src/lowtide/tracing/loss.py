"""The loss where the user gives none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lowtide.errors import CaptureError
from lowtide.tracing.source import user_line

Loss = Callable[[nn.Module, Any], Any]


def model_loss(model: nn.Module, batch: Any) -> Any:
    """The loss where the user gives none: what the model itself returns."""
    if isinstance(batch, Tensor):
        output = model(batch)
    elif isinstance(batch, Mapping):
        output = model(**batch)
    elif isinstance(batch, Sequence) and not isinstance(batch, str):
        output = model(*batch)
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
