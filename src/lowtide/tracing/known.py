"""Keeps the real values of what is computed from integer and boolean tensors of the batch alone, beside the trace.

A trace sees no values, so it cannot answer what eager asks of a mask or of lengths. Here the answer is known, and the
question is remembered: `graph.conditions` asks it of each later batch before the step.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from lowtide.graph.conditions import Call, Conditions, Question, Ref, answer_of
from lowtide.kernels.effects import is_random, written_arguments
from lowtide.kernels.sized import ctc_loss_of, largest_of, masked_select_of, nonzero_of

aten = torch.ops.aten
LARGEST = 1 << 25
"""Elements; what is larger is not computed beside the trace."""
_FACTORIES = {
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.scalar_tensor.default,
    aten.eye.default,
    aten.tril_indices.default,
    aten.triu_indices.default,
}


_FRESH = {aten.lift_fresh.default, aten.lift_fresh_copy.default}


class KnownValues:
    """The values that are known, by the tensors that stand for them in the trace."""

    def __init__(self, batch: Sequence[Tensor]) -> None:
        self._real = list(batch)
        self._known = WeakTensorKeyDictionary()
        self._numbers = len(batch)
        self._calls: list[Call] = []
        self._questions: list[Question] = []

    def start(self, stand_ins: Sequence[Tensor]) -> None:
        """The trace begins: these stand for the tensors of the batch."""
        storages: dict[int, torch.UntypedStorage] = {}
        for number, (real, fake) in enumerate(zip(self._real, stand_ins, strict=True)):
            if real.is_floating_point() or real.is_complex() or real.layout is not torch.strided:
                continue
            with _disable_current_modes(), torch.no_grad():
                held = real.untyped_storage()
                own = storages.setdefault(held._cdata, held.clone())  # what is changed in place is ours
                mine = torch.empty(0, dtype=real.dtype, device=real.device)
                mine.set_(own, real.storage_offset(), real.shape, real.stride())
            self._known[fake] = (mine, number)

    def conditions(self) -> Conditions:
        """What was asked."""
        if not self._questions:
            return Conditions(len(self._real))
        return Conditions(len(self._real), tuple(self._calls), tuple(self._questions))

    def follow(self, op: OpOverload, args: Any, kwargs: Any, out: Any) -> None:
        """`op` ran in the trace and made `out`: the same with the values, where they are known."""
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        written = [x for x in written_arguments(op, args, kwargs) if isinstance(x, Tensor)]
        known = all(x in self._known for x in given) if given else op in _FACTORIES
        made = [x for x in pytree.tree_leaves(out) if isinstance(x, Tensor)]
        if op in _FRESH and not isinstance(args[0], FakeTensor) and args[0].numel() <= LARGEST:
            # A tensor made from Python values in forward; the guards watch those.
            with _disable_current_modes(), torch.no_grad():
                constant = args[0].detach().clone()
                self._known[out] = (constant.clone(), self._numbers)
            self._calls.append(Call(aten.clone.default, (constant,), {}, (self._numbers,), False))
            self._numbers += 1
            return
        if not known or is_random(op) or any(x.numel() > LARGEST for x in made):
            for x in written:
                self._forget(x)
            return
        if not made:
            return
        call_args, call_kwargs, result = self._run(op, args, kwargs)
        numbers: list[int | None] = []
        for fake, real in zip(pytree.tree_leaves(out), pytree.tree_leaves(result), strict=True):
            if isinstance(fake, Tensor):
                if fake in self._known:  # an op in place gives back what it got
                    numbers.append(self._known[fake][1])
                    continue
                self._known[fake] = (real, self._numbers)
                numbers.append(self._numbers)
                self._numbers += 1
            else:
                numbers.append(None)
        self._calls.append(Call(op, call_args, call_kwargs, tuple(numbers), bool(written)))

    def ask(self, op: OpOverload, args: Any, kwargs: Any, source: str) -> Any:
        """The real result of an `op` that looks at values; None where they are not known."""
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not given or not all(x in self._known for x in given):
            return None
        call_args, call_kwargs, result = self._run(op, args, kwargs)
        made = tuple(None for _ in pytree.tree_leaves(result))
        call = Call(op, call_args, call_kwargs, made, False)
        self._questions.append(Question(call, len(self._calls), answer_of(result), source))
        return result

    def sized(self, op: OpOverload, args: Any, kwargs: Any, source: str) -> tuple[OpOverload, Any, Any]:
        """`op` and its arguments, with the size of its result given where a mask or counts that are known decide it."""
        if op is aten.nonzero.default:
            found = self.ask(aten.nonzero.default, args, kwargs, source)
            if found is not None:
                return nonzero_of, (args[0], len(found)), {}
        elif op is aten.masked_select.default:
            found = self.ask(aten.nonzero.default, (args[1],), {}, source) if args[0].shape == args[1].shape else None
            if found is not None:
                return masked_select_of, (*args, len(found)), {}
        elif op is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None and len(args) == 1:
            found = self.ask(op, args, kwargs, source)
            if found is not None:
                return op, args, {"output_size": len(found)}
        elif op is aten._ctc_loss.Tensor:
            found = self.ask(largest_of, (args[3],), {}, source)
            if found is not None:
                return ctc_loss_of, (*args, *(0, False)[len(args) - 4 :], found), {}
        elif op is aten.index.Tensor and any(_is_mask(x) for x in args[1]):
            indices: list[Any] = []
            for index in args[1]:
                found = self.ask(aten.nonzero.default, (index,), {}, source) if _is_mask(index) else None
                if found is None:
                    indices.append(index)
                    continue
                places = nonzero_of(index, len(found))
                self.follow(nonzero_of, (index, len(found)), {}, places)
                indices += [aten.select.int(places, 1, dim) for dim in range(index.dim())]
            return op, (args[0], indices), kwargs
        return op, args, kwargs

    def _run(self, op: OpOverload, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        """Arguments by number, and the real result."""
        numbered = pytree.tree_map(lambda x: Ref(self._known[x][1]) if isinstance(x, Tensor) else x, (args, kwargs))
        real = pytree.tree_map(lambda x: self._known[x][0] if isinstance(x, Tensor) else x, (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            result = op(*real[0], **real[1])
        return *numbered, result

    def _forget(self, written: Tensor) -> None:
        """What is not known has been written into it: nothing that shares its bytes is known any more."""
        if written not in self._known:
            return
        storage = self._known[written][0].untyped_storage()._cdata
        for fake in [x for x, (real, _) in self._known.items() if real.untyped_storage()._cdata == storage]:
            del self._known[fake]


def _is_mask(x: Any) -> bool:
    return isinstance(x, FakeTensor) and x.dtype in (torch.bool, torch.uint8)


def looks_at_values(op: OpOverload, args: Any) -> bool:
    """Does `op` read values into Python?"""
    return op in (aten._local_scalar_dense.default, aten.equal.default) and isinstance(args[0], FakeTensor)


@contextmanager
def models_may_look() -> Iterator[None]:
    """transformers does not look at masks while it thinks that it is traced; eager looks, so the trace must."""
    module = sys.modules.get("transformers.utils.import_utils")
    asked = getattr(module, "is_tracing", None)
    if asked is None:
        yield
        return
    before = asked.__code__
    asked.__code__ = _not_tracing.__code__
    try:
        yield
    finally:
        asked.__code__ = before


def _not_tracing(tensor: Any = None) -> bool:
    return False
