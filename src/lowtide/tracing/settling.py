"""A forward that changes something in Python once and then no more: is the step the same after that?

Many models of transformers fill in a field of their configuration at the first forward. That is harmless if a second
one changes nothing and runs the same ops on the same values.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.graph.batch_form import BatchForm
from lowtide.kernels.shards import local
from lowtide.parallel.alone import Alone
from lowtide.tracing.joint import Inputs, quiet_trace, standing_in
from lowtide.tracing.known import KnownValues, looks_at_values
from lowtide.tracing.loss import Loss
from lowtide.tracing.real_writes import RealWrites
from lowtide.tracing.recorder import is_traced, unwatched
from lowtide.tracing.signature import Signature
from lowtide.tracing.value_dependent import ValueDependent
from lowtide.watching.watcher import Watcher


class _Echo(TorchDispatchMode):
    """Writes down what runs."""

    def __init__(self, known: KnownValues) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.signature = Signature()
        self.writes = RealWrites()
        self._known = known

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default and is_traced(args[0]):
            return args[0].fake_device
        with unwatched():
            return self._dispatch(func, args, kwargs or {})

    def _dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if looks_at_values(func, args):
            answer = self._known.ask(func, args, kwargs, "")
            if answer is not None:
                return answer
        func, args, kwargs = self._known.sized(func, args, kwargs, "")
        self.writes.note(func, args, kwargs)
        out = func(*args, **kwargs)
        self._known.follow(func, args, kwargs, out)
        self.signature.note(func, args, kwargs, out)
        return out


def has_settled(
    model: nn.Module,
    loss: Loss,
    inputs: Inputs,
    form: BatchForm,
    batch: Sequence[Tensor],
    before: Signature,
    spread: Alone,
) -> bool:
    """Does a second forward change nothing more, and run what `before` says? Called before anything is put back."""
    watcher = Watcher(model, loss)
    known = KnownValues(batch)
    echo = _Echo(known)
    try:
        with quiet_trace(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            reals = inputs.parameters | inputs.buffers
            fakes = spread.gathered({name: mode.from_tensor(local(t)) for name, t in reals.items()})
            stand_ins = {id(t): fakes[name].detach().requires_grad_(t.requires_grad) for name, t in reals.items()}
            leaves = [mode.from_tensor(t) for t in batch]
            known.start(leaves)
            with (
                echo,
                torch.enable_grad(),
                standing_in(model, stand_ins),
                ValueDependent([*stand_ins.values(), *leaves]),
                watcher.watching(),
            ):
                loss(model, form.rebuild(leaves))
        stands_for = {id(stand_ins[id(t)]): t for t in reals.values()}
        return not watcher.effects(stands_for) and echo.signature == before
    finally:
        echo.writes.restore()
        watcher.forget()
