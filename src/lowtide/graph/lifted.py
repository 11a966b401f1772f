"""Numbers of the user's that a graph reads anew at every run, instead of as constants."""

from collections.abc import Callable
from typing import Any

import torch

from lowtide.watching.holders import Holder

FORMS: dict[str, Callable[[float], float]] = {
    "v": lambda v: v,
    "-v": lambda v: -v,
    "1 - v": lambda v: 1 - v,
    "1 / v": lambda v: 1 / v if v else float("nan"),
}
"""How a constant can come from a value of the user's."""

aten = torch.ops.aten
SCALING = {
    aten.mul.Tensor,
    aten.mul.Scalar,
    aten.div.Tensor,
    aten.div.Scalar,
    aten.add.Tensor,
    aten.add.Scalar,
    aten.sub.Tensor,
    aten.sub.Scalar,
}
"""Ops whose second argument may be any number: it changes no shape, no kernel and no bytes."""


class Lifted(float):
    """In the place of a constant: `lifted()` is what the user's value gives now."""

    number: int
    holder: Holder
    key: Any
    form: str

    def __new__(cls, value: float, number: int, holder: Holder, key: Any, form: str) -> "Lifted":
        """`value` is what it was at the capture."""
        made = super().__new__(cls, value)
        made.number, made.holder, made.key, made.form = number, holder, key, form
        return made

    def __call__(self) -> float:
        """The number now."""
        return FORMS[self.form](self.holder.values_at(self.key)[1])
