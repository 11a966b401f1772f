"""The state of torch in which the ops of a graph run: as inside eager autograd, without autograd itself.

Some kernels ask whether gradients are wanted and then choose another algorithm or make other outputs (oneDNN's LSTM
does). Eager runs forward kernels with gradients switched on and backward kernels with them off, below autograd's own
dispatch. A program that runs everything under `no_grad` is not the same.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lowtide.records.vocabulary import Phase

set_grad_mode = torch._C._set_grad_enabled


def grad_mode_of(phase: Phase) -> bool:
    """Does eager run the kernels of `phase` with gradients switched on?"""
    return phase is Phase.FORWARD


class _Outside(threading.local):
    """How torch dispatched where the thread entered `below_autograd`."""

    guards: tuple[torch._C.DispatchKeySet, torch._C.DispatchKeySet, bool] | None = None


_outside = _Outside()


@contextmanager
def below_autograd() -> Iterator[None]:
    """Run ops without autograd and autocast; the grad mode is the block's to set and is put back at the end."""
    before = _outside.guards
    grad = torch.is_grad_enabled()
    _outside.guards = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
        grad,
    )
    try:
        with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast():
            yield
    finally:
        _outside.guards = before
        set_grad_mode(grad)


@contextmanager
def as_the_user() -> Iterator[None]:
    """Inside `below_autograd`: run code of the user's, such as an optimizer, as if it were called from outside."""
    guards = _outside.guards
    if guards is None:
        yield
        return
    include, exclude, outer = guards
    inner = torch.is_grad_enabled()
    set_grad_mode(outer)
    _outside.guards = None
    try:
        with torch._C._ForceDispatchKeyGuard(include, exclude):
            yield
    finally:
        _outside.guards = guards
        set_grad_mode(inner)
