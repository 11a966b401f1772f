"""Random ops that run again: the state of the generator before the first run, and a run from that state."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Generator, Tensor
from torch._ops import OpOverload


def generator_of(device: torch.device) -> Generator:
    """The generator that random ops on `device` draw from; without an index, on the device that is current now."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator


def generator_state(device: torch.device) -> Tensor:
    """The state of the generator of `device`: what a later `replay_form` needs."""
    return generator_of(device).get_state()


def generator_bytes(device: torch.device) -> int:
    """Device bytes of one `generator_state`: other devices than the CPU have theirs in host memory."""
    return generator_state(device).nbytes if device.type == "cpu" else 0


@cache
def replay_form(op: OpOverload, device: torch.device) -> Callable[..., Any]:
    """`op` as a function of a generator state and its arguments, which leaves the generator as it found it.

    While `op` runs, there are `generator_bytes` more: the state to go back to. The generator is looked up at each run,
    as `op` does it: which device is the current one may have changed.
    """

    def replay(state: Tensor, *args: Any, **kwargs: Any) -> Any:
        generator = generator_of(device)
        before = generator.get_state()
        generator.set_state(state)
        try:
            return op(*args, **kwargs)
        finally:
            generator.set_state(before)

    replay.__name__ = f"replay_{str(op).replace('.', '_')}"
    return replay
