"""How long a copy between device memory and a swap space takes, read off measured samples."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransferSample:
    """Measured transfer of `bytes` out of and into device memory."""

    bytes: int
    out_ms: float
    in_ms: float


def copy_ms(samples: Sequence[TransferSample], size: int) -> tuple[float, float]:
    """Time out and time in for `size` bytes, between the measured sizes and beyond them."""
    sizes = [sample.bytes for sample in samples]
    return (
        between(sizes, [sample.out_ms for sample in samples], size),
        between(sizes, [sample.in_ms for sample in samples], size),
    )


def between(sizes: Sequence[int], times: Sequence[float], size: int) -> float:
    """The time for `size`, from those of the measured `sizes`, which rise."""
    place = bisect_left(sizes, size)
    if place == 0:
        return times[0]
    if place == len(sizes):
        return times[-1] * size / sizes[-1]
    share = (size - sizes[place - 1]) / (sizes[place] - sizes[place - 1])
    return times[place - 1] + share * (times[place] - times[place - 1])
