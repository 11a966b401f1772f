"""Which module to change: whose activations fill the memory at the peak, and what making them again would take."""

from dataclasses import dataclass

from lowtide.records.profile import ActivationRecord, Profile
from lowtide.reporting.module_groups import REST, largest_kinds, module_kind

_MOST = 12
_LEAST = 0.001
"""Of the peak; what has less is not worth a row."""


@dataclass(frozen=True, slots=True)
class Filler:
    """The activations of all modules alike that are alive at the peak."""

    module: str
    """A path in which numbers are `*`."""
    count: int
    bytes: int
    share: float
    """Of the peak."""
    recompute_ms: float
    """To make all of them again."""
    source: str
    """The line that makes most of these bytes."""


def fillers(profile: Profile) -> list[Filler]:
    """The kinds of modules with most bytes first, all small ones together at the end."""
    alive = [a for a in profile.activations if _alive(profile, a)]
    members: dict[str, list[ActivationRecord]] = {
        kind: [] for kind in largest_kinds(((a.module, a.memory_size_B) for a in alive), _MOST)
    }
    for a in alive:
        members.get(module_kind(a.module), members.get(REST, [])).append(a)
    rows = [_filler(profile, kind, group) for kind, group in members.items()]
    return [row for row in rows if row.share >= _LEAST]


def _alive(profile: Profile, a: ActivationRecord) -> bool:
    storage = profile.storages[a.storage]
    return storage.created is not None and storage.created <= profile.peak_rank <= (storage.last or 0)


def _filler(profile: Profile, kind: str, group: list[ActivationRecord]) -> Filler:
    size = sum(a.memory_size_B for a in group)
    lines: dict[str, int] = {}
    for a in group:
        lines[a.source] = lines.get(a.source, 0) + a.memory_size_B
    return Filler(
        module=kind,
        count=len(group),
        bytes=size,
        share=size / max(profile.peak_B, 1),
        recompute_ms=sum(a.recomp_time_ms for a in group),
        source=max(lines, key=lambda line: lines[line]) if kind != REST else "",
    )
