"""Random ops that run again: the state of the generator before the first run, and a run from that state."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Generator, Tensor
from torch._ops import OpOverload


def generator_of(device: torch.device) -> Generator:
    """The generator that random ops on `device` draw from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator


def generator_state(device: torch.device) -> Tensor:
    """The state of the generator of `device`: what a later `replay_form` needs."""
    return generator_of(device).get_state()


@cache
def replay_form(op: OpOverload, device: torch.device) -> Callable[..., Any]:
    """`op` as a function of a generator state and its arguments, which leaves the generator as it found it."""
    generator = generator_of(device)

    def replay(state: Tensor, *args: Any, **kwargs: Any) -> Any:
        before = generator.get_state()
        generator.set_state(state)
        try:
            return op(*args, **kwargs)
        finally:
            generator.set_state(before)

    replay.__name__ = f"replay_{str(op).replace('.', '_')}"
    return replay
