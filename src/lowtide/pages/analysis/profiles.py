"""What a profile says about its model: static facts, the peak, the largest activations, where time goes."""

from collections.abc import Iterable
from dataclasses import dataclass

from lowtide.pages.analysis.cells import plain, share
from lowtide.records.profile import OpRecord, Profile
from lowtide.records.vocabulary import Phase, Role
from lowtide.reporting.memory_breakdown import peak_parts
from lowtide.reporting.style import batch_line
from lowtide.units import format_bytes, format_ms

_ROWS = 6
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """Ready to print; a row is the cells of a table."""

    model: str
    batch: str
    optimizer: str
    machine: str
    ops: int
    views: int
    parameters: str
    resident: str
    resident_share: str
    peak: str
    peak_at: str
    step: str
    activations: int
    activation_bytes: str
    half: int
    """So many of the largest activations hold half of all their bytes."""
    cheap: str
    """Bytes of the activations that all ops that make them again take a hundredth of the step to recompute."""
    cheap_share: str
    parts: tuple[Row, ...]
    largest: tuple[Row, ...]
    phases: tuple[Row, ...]
    kinds: tuple[Row, ...]


def profile_facts(profile: Profile) -> ProfileFacts:
    """The facts of one profile."""
    sizes = sorted((a.memory_size_B for a in profile.activations), reverse=True)
    total = sum(op.runtime_ms for op in profile.ops)
    op = profile.ops[profile.peak_rank]
    parameters = sum(s.bytes for s in profile.storages if s.role is Role.PARAMETER)
    cheap = _cheap(profile, 0.01 * total)
    return ProfileFacts(
        model=plain(profile.model),
        batch=plain(batch_line(profile)),
        optimizer=plain(profile.optimizer),
        machine=plain(f"{profile.device}, {profile.threads} threads, torch {profile.torch}"),
        ops=len(profile.ops),
        views=sum(op.is_view for op in profile.ops),
        parameters=format_bytes(parameters),
        resident=format_bytes(profile.resident_B),
        resident_share=share(profile.resident_B / profile.peak_B),
        peak=format_bytes(profile.peak_B),
        peak_at=plain(f"{op.phase}: {op.op} in {op.module or 'the root'}"),
        step=format_ms(profile.step_ms),
        activations=len(sizes),
        activation_bytes=format_bytes(sum(sizes)),
        half=_half(sizes),
        cheap=format_bytes(cheap),
        cheap_share=share(cheap / sum(sizes) if sizes else 0.0),
        parts=tuple(
            (word, format_bytes(size), share(size / profile.peak_B)) for word, size in peak_parts(profile).items()
        ),
        largest=tuple(_largest(profile)),
        phases=tuple(_times(profile.ops, total, [(phase.value, phase) for phase in Phase])),
        kinds=tuple(_kinds(profile.ops, total)),
    )


def _half(sizes: list[int]) -> int:
    """How many of the largest are half of all."""
    count, reached = 0, 0
    for size in sizes:
        if 2 * reached >= sum(sizes):
            break
        count, reached = count + 1, reached + size
    return count


def _cheap(profile: Profile, limit: float) -> int:
    """Bytes of activations by rising recompute time per byte, until the time of all of them reaches `limit`."""
    spent, bytes_ = 0.0, 0
    for a in sorted(profile.activations, key=lambda a: a.recomp_time_ms / max(a.memory_size_B, 1)):
        spent += a.recomp_time_ms
        if spent > limit:
            break
        bytes_ += a.memory_size_B
    return bytes_


def _largest(profile: Profile) -> Iterable[Row]:
    for a in sorted(profile.activations, key=lambda a: (-a.memory_size_B, a.created))[:_ROWS]:
        times = (format_ms(a.inactive_time_ms), format_ms(a.recomp_time_ms), format_ms(a.swap_time_ms))
        yield (plain(a.name), plain(a.module or "(root)"), format_bytes(a.memory_size_B), *times)


def _times(ops: Iterable[OpRecord], total: float, phases: list[tuple[str, Phase]]) -> Iterable[Row]:
    kept = list(ops)
    for word, phase in phases:
        mine = [op for op in kept if op.phase is phase]
        ms = sum(op.runtime_ms for op in mine)
        yield word, str(len(mine)), format_ms(ms), share(ms / total if total else 0.0)


def _kinds(ops: Iterable[OpRecord], total: float) -> Iterable[Row]:
    groups: dict[str, list[float]] = {}
    for op in ops:
        groups.setdefault(op.op, []).append(op.runtime_ms)
    for kind, times in sorted(groups.items(), key=lambda entry: -sum(entry[1]))[:_ROWS]:
        ms = sum(times)
        yield plain(kind), str(len(times)), format_ms(ms), share(ms / total if total else 0.0)
