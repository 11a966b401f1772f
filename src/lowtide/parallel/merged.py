"""One profile for all ranks: the slowest time and the most bytes of each op."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lowtide.parallel.ranks import Ranks
from lowtide.records.profile import Profile

_TIMES = ("runtime_ms", "runtime_spread_ms")
_BYTES = ("active_mem_B", "peak_mem_B", "output_B", "workspace_B", "alone_B")
_PACKS = ("pack_ms", "unpack_ms", "pack_workspace_B", "unpack_workspace_B")


def merged(profile: Profile, ranks: Ranks) -> Profile:
    """What every rank of `ranks` can live with. All have profiled the same graph."""
    if ranks.alone:
        return profile
    numbers: list[float] = [profile.step_ms, profile.step_peak_B]
    numbers += [getattr(op, name) for op in profile.ops for name in (*_TIMES, *_BYTES)]
    numbers += [storage.bytes for storage in profile.storages]
    numbers += [getattr(pack, name) for pack in profile.packs for name in _PACKS]
    largest = iter(ranks.largest(numbers))
    step_ms, step_peak = next(largest), int(next(largest))
    ops = tuple(replace(op, **_taken(largest, _TIMES, _BYTES)) for op in profile.ops)
    storages = tuple(replace(storage, bytes=int(next(largest))) for storage in profile.storages)
    packs = tuple(replace(pack, **_taken(largest, _PACKS[:2], _PACKS[2:])) for pack in profile.packs)
    return replace(profile, step_ms=step_ms, step_peak_B=step_peak, ops=ops, storages=storages, packs=packs)


def _taken(numbers: Iterator[float], times: Sequence[str], sizes: Sequence[str]) -> dict[str, Any]:
    return {name: next(numbers) for name in times} | {name: int(next(numbers)) for name in sizes}
