"""What a step decides by looking at its batch: asked of each batch before the step, so that nothing is frozen."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of a Calls record, by number; the first ones are the tensors of the batch."""

    number: int


@dataclass(frozen=True, slots=True)
class Call:
    """One op on values that are computed from the batch alone."""

    op: OpOverload
    args: Any
    kwargs: Any
    made: tuple[int | None, ...]
    """The numbers of its results, flattened; None for what is no tensor."""
    writes: bool
    """Does it change one of its arguments?"""


@dataclass(frozen=True, slots=True)
class Question:
    """A value of the batch's that the step looked at, and what it saw."""

    call: Call
    """What was asked: `.item()`, or an op whose result has a shape that depends on values."""
    before: int
    """How many calls had been made by then."""
    answer: object
    source: str


def answer_of(result: Any) -> object:
    """What counts of a result: a number by its value, a tensor by its shape."""
    return tuple(tuple(x.shape) if isinstance(x, Tensor) else x for x in pytree.tree_leaves(result))


@dataclass(frozen=True)
class Conditions:
    """The questions of a step in their order, and the ops that lead from the batch to each of them."""

    leaves: int
    """How many tensors the batch has."""
    calls: tuple[Call, ...] = ()
    questions: tuple[Question, ...] = ()

    def first_difference(self, batch: Sequence[Tensor]) -> Question | None:
        """The first question that `batch` answers differently; None where the step is right for it."""
        if not self.questions:
            return None
        values: dict[int, Any] = dict(enumerate(batch))
        if any(call.writes for call in self.calls):
            values = {number: tensor.clone() for number, tensor in values.items()}
        done = 0
        with torch.no_grad():
            for question in self.questions:
                for place in range(done, question.before):
                    if place in self._needed:
                        _run(self.calls[place], values)
                done = question.before
                now = answer_of(_run(question.call, values))
                if not _equal(question.answer, now):
                    return question
        return None

    @cached_property
    def _needed(self) -> frozenset[int]:
        """The calls that some question depends on; all of them where values are changed in place."""
        if any(call.writes for call in self.calls):
            return frozenset(range(len(self.calls)))
        wanted = {n for question in self.questions for n in _refs(question.call)}
        needed = set()
        for place in reversed(range(len(self.calls))):
            call = self.calls[place]
            if not wanted.isdisjoint(call.made):
                needed.add(place)
                wanted.update(_refs(call))
        return frozenset(needed)


def _refs(call: Call) -> list[int]:
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    return [leaf.number for leaf in leaves if isinstance(leaf, Ref)]


def _run(call: Call, values: dict[int, Any]) -> Any:
    args, kwargs = pytree.tree_map(lambda x: values[x.number] if isinstance(x, Ref) else x, (call.args, call.kwargs))
    result = call.op(*args, **kwargs)
    for number, value in zip(call.made, pytree.tree_leaves(result), strict=True):
        if number is not None:
            values[number] = value
    return result


def _equal(a: object, b: object) -> bool:
    return a == b or repr(a) == repr(b)  # nan is nan here
