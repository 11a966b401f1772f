"""Values that leave the device for a while: the ops that send them away and bring them back.

`offload` and `prefetch` start a copy and return at once; `release` and `arrive` wait for it, or make the device wait:
all that the program does behind them is behind the copy. Whoever runs the step
gives it the space that the values go to.
"""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor


class Space(Protocol):
    """Where values go. What `offload` returns stands for a value that is away."""

    def offload(self, value: Tensor) -> Any:
        """Start to copy `value` out; it must live on until `settle`."""

    def settle(self, parked: Any) -> None:
        """Wait for the copy out."""

    def prefetch(self, parked: Any) -> Tensor:
        """Take memory for the value and start to copy it back."""

    def arrive(self, value: Tensor) -> None:
        """Wait for the copy back."""


class Run(Protocol):
    """One run of a step, which was given a space where it swaps."""

    space: Space | None


def space_of(run: Run) -> Space:
    """The space that `run` was given."""
    assert run.space is not None, "a step that swaps needs a space"
    return run.space


def offload(run: Run, value: Tensor) -> Any:
    """Start to copy a value out."""
    return space_of(run).offload(value)


def release(run: Run, parked: Any, value: Tensor) -> None:
    """Wait until the copy out is complete; the program drops `value` behind it."""
    space_of(run).settle(parked)


def prefetch(run: Run, parked: Any) -> Tensor:
    """Memory for a value, which is on its way back."""
    return space_of(run).prefetch(parked)


def arrive(run: Run, value: Tensor) -> None:
    """Wait until a value is back."""
    space_of(run).arrive(value)


SWAP_OPS: tuple[Callable[..., Any], ...] = (offload, release, prefetch, arrive)
"""They are given the run as well."""
WAITS: tuple[Callable[..., Any], ...] = (release, arrive)
"""They give nothing back."""
