"""A step as it would be in another shape: what was measured, scaled by what the two are estimated at; or estimates of
some shapes, and all that lies on the curve through them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from lowtide.graph.liveness import live_bytes
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.estimate import estimate
from lowtide.profiling.op_record import op_record
from lowtide.records.profile import OpRecord, PackRecord, Profile

MARGIN = 1.25
"""Workspaces of another shape are taken for so much larger: a kernel may choose another way to compute there."""


@dataclass(frozen=True)
class Basis:
    """A measured step, and the estimate of the same: what estimates of its other shapes are held against."""

    measured: Profile
    estimated: Profile

    def scaled(self, graph: StepGraph) -> Profile:
        """What `graph` would be measured at, the same ops in another shape. No workspace is taken for smaller than the
        measured one; times are only as good as the estimate."""
        new = estimate(graph)
        measured, old = _by_name(self.measured), _by_name(self.estimated)
        growth = {op.name: _growth(self.estimated, old[op.name], new, op) for op in new.ops if op.name in old}
        sizes = self._sizes(graph, growth)
        active = live_bytes(graph.ops, graph.storages, graph.lifetimes, sizes)
        known = {storage.name for storage in graph.storages}
        unforeseen = [s for s in self.measured.storages if s.resident and s.name not in known]
        more = sum(storage.bytes for storage in unforeseen)
        records = []
        for op, guess in zip(graph.ops, new.ops, strict=True):
            seen, times = measured.get(op.name), growth.get(op.name, 1.0)
            before = old[op.name].runtime_ms if op.name in old else 0.0
            faster = guess.runtime_ms / before if before else 1.0
            records.append(
                op_record(
                    op,
                    times=(),
                    runtime_ms=guess.runtime_ms if seen is None else seen.runtime_ms * faster,
                    live=active[op.rank] + more,
                    workspace=guess.workspace_B if seen is None else _room(seen.workspace_B, times),
                    sizes=sizes,
                    alone=guess.alone_B if seen is None else seen.alone_B,
                )
            )
        whole = sum(op.runtime_ms for op in self.measured.ops)
        return replace(
            self.measured,
            batch=graph.form.lines,
            step_ms=self.measured.step_ms * (sum(op.runtime_ms for op in records) / whole if whole else 1.0),
            step_spread_ms=0.0,
            step_peak_B=max(op.peak_mem_B for op in records),
            storages=(*(replace(s, bytes=size) for s, size in zip(new.storages, sizes, strict=True)), *unforeseen),
            ops=tuple(records),
            activations=(),
            packs=self._packs(new, sizes),
        )

    def _sizes(self, graph: StepGraph, growth: Mapping[str, float]) -> list[int]:
        """Bytes of the graph's storages: as traced, unless the measured one was not as traced (oneDNN's LSTM)."""
        sizes = [storage.bytes for storage in graph.storages]
        real, traced = _made(self.measured), _made(self.estimated)
        for op in graph.ops:
            if op.name not in real or len(real[op.name]) != len(traced.get(op.name, ())):
                continue
            for s, size, said in zip(op.makes, real[op.name], traced[op.name], strict=False):
                if size != said:
                    sizes[s] = max(sizes[s], ceil(size * max(1.0, growth.get(op.name, 1.0))))
        return sizes

    def _packs(self, new: Profile, sizes: list[int]) -> tuple[PackRecord, ...]:
        """Packing costs by the byte; what was not measured stays an estimate."""
        key = {s: (op.name, k) for op in self.measured.ops for k, s in enumerate(op.makes)}
        known = {(*key[p.storage], p.kind): (p, self.measured.storages[p.storage].bytes) for p in self.measured.packs}
        makers = {s: (op.name, k) for op in new.ops for k, s in enumerate(op.makes)}
        found = []
        for guess in new.packs:
            pack, size = known.get((*makers[guess.storage], guess.kind), (guess, sizes[guess.storage]))
            times = sizes[guess.storage] / size if size else 1.0
            found.append(
                replace(
                    guess,
                    pack_ms=pack.pack_ms * times,
                    unpack_ms=pack.unpack_ms * times,
                    pack_workspace_B=_room(pack.pack_workspace_B, times),
                    unpack_workspace_B=_room(pack.unpack_workspace_B, times),
                )
            )
        return tuple(found)


def through(known: Sequence[Profile], weights: Sequence[int]) -> Profile:
    """The sum of `known`, the same ops in several shapes, each by its weight: a shape between or beyond them."""
    storages = _summed([p.storages for p in known], weights, "bytes")
    ops = _summed([p.ops for p in known], weights, "runtime_ms", "workspace_B", "alone_B")
    packs = _summed(
        [p.packs for p in known], weights, "bytes", "pack_ms", "unpack_ms", "pack_workspace_B", "unpack_workspace_B"
    )
    peak = sum(p.step_peak_B * w for p, w in zip(known, weights, strict=True))
    return replace(
        known[0],
        storages=storages,
        ops=ops,
        packs=packs,
        step_peak_B=peak,
        step_ms=sum(op.runtime_ms for op in ops),
    )


def _summed(known: Sequence[Sequence[Any]], weights: Sequence[int], *fields: str) -> tuple[Any, ...]:
    """Records whose `fields` are summed, never below zero; bytes stay whole."""
    found = []
    for each in zip(*known, strict=True):
        values = {name: sum(getattr(x, name) * w for x, w in zip(each, weights, strict=True)) for name in fields}
        found.append(replace(each[0], **{name: max(type(value)(0), value) for name, value in values.items()}))
    return tuple(found)


def _by_name(profile: Profile) -> dict[str, OpRecord]:
    return {op.name: op for op in profile.ops}


def _made(profile: Profile) -> dict[str, list[int]]:
    return {op.name: [profile.storages[s].bytes for s in op.makes] for op in profile.ops}


def _growth(old_profile: Profile, old: OpRecord, new_profile: Profile, new: OpRecord) -> float:
    """How much larger the op is: by the bytes that it touches or by its time, whichever is more."""
    before, after = (
        sum(storages[s].bytes for s in {*op.reads, *op.writes})
        for storages, op in ((old_profile.storages, old), (new_profile.storages, new))
    )
    by_bytes = after / before if before else 1.0
    return max(by_bytes, new.runtime_ms / old.runtime_ms if old.runtime_ms else 1.0)


def _room(workspace: int, growth: float) -> int:
    """Of an op in another shape: never less than what was measured."""
    return workspace if growth == 1.0 else ceil(MARGIN * workspace * max(1.0, growth))
