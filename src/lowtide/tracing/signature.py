"""What a forward computes, as a list that two runs of it can be compared by."""

from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary


class Signature:
    """The ops that ran, with their numbers and with which tensor came from which op."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []
        self._numbers = WeakTensorKeyDictionary()
        self._count = 0

    def note(self, op: OpOverload, args: Any, kwargs: Any, out: Any) -> None:
        """`op` has run."""
        given = tuple(self._leaf(x) for x in pytree.tree_leaves((args, kwargs)))
        self.lines.append((op, given, tuple(self._leaf(x) for x in pytree.tree_leaves(out))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self.lines == other.lines

    __hash__ = None  # type: ignore[assignment]

    def _leaf(self, x: Any) -> object:
        if not isinstance(x, Tensor):
            return repr(x)
        if x not in self._numbers:
            self._numbers[x] = self._count
            self._count += 1
        return (self._numbers[x], tuple(x.shape), x.dtype)
