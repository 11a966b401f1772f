"""Kernels that need not give the same bits twice, which must not be run again unnoticed.

On CUDA cuDNN may choose another algorithm for a convolution each time it measures (`torch.backends.cudnn.benchmark`),
and some kernels add up in any order (torch's list stands at `torch.use_deterministic_algorithms`). Eager training does
not repeat itself either then; with a plan two runs of one op in one step may differ as well. Such a plan still trains,
but "bit for bit" cannot be promised for it, so it is said.
"""

import logging
from collections.abc import Iterable
from functools import cache

import torch

from lowtide.device import cuda

log = logging.getLogger(__name__)

_UNORDERED = {
    *("bincount", "cumsum", "histc", "index_add", "index_copy", "index_put", "max_unpool2d", "max_unpool3d"),
    *("median", "nll_loss2d_forward", "put", "scatter", "scatter_add", "scatter_reduce"),
}
"""Forward kernels of CUDA that torch documents as not deterministic, by their aten names."""


def warn_of_chosen_kernels(recomputed: Iterable[str], device: torch.device) -> None:
    """Warn, once for each, of `recomputed` ops (`aten.cumsum.default`) whose kernels on `device` may differ twice.

    Name only those that make floating point numbers: integers add up to the same in any order.
    """
    if cuda.type_of(device) != "cuda" or torch.are_deterministic_algorithms_enabled():
        return
    names = {op.split(".")[1] for op in recomputed if op.startswith("aten.")}
    if torch.backends.cudnn.benchmark and not torch.backends.cudnn.deterministic and "convolution" in names:
        _say(
            "the plan runs convolutions again while torch.backends.cudnn.benchmark is on: cuDNN may choose another "
            "algorithm for the second run, and bits may differ from eager's; switch it off, or set "
            "torch.backends.cudnn.deterministic"
        )
    if unordered := sorted(names & _UNORDERED):
        _say(
            f"the plan runs {', '.join(unordered)} again, which on CUDA need not give the same bits twice; switch on "
            "torch.use_deterministic_algorithms where that matters"
        )


@cache
def _say(sentence: str) -> None:
    log.warning("%s", sentence)
