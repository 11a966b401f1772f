"""When storages are alive and when activations are used, as ranks in the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.graph.ops import Op, Storage, run_ends
from lowtide.records.vocabulary import Phase, Role


@dataclass(frozen=True, slots=True)
class Lifetime:
    """First and last op during which a storage that is not resident is alive."""

    created: int
    last: int


@dataclass(frozen=True, slots=True)
class ActivationUses:
    """Where an activation is made and read. Views do not read; what reads the view reads the activation."""

    storage: int
    created: int
    last_fw_use: int
    first_bw_use: int
    last_bw_use: int


def lifetimes(ops: Sequence[Op], storages: Sequence[Storage], kept: frozenset[int]) -> dict[int, Lifetime]:
    """The lifetime of every storage that is not resident; `kept` ones live to the end.

    A storage that is overwritten in place ends before the op: from then on its bytes are the result's.
    """
    born = {s.index: s.maker for s in storages if s.maker is not None}
    last = dict(born)
    ends = run_ends(ops)
    for op in ops:
        for storage in op.reads:
            if storage in last:
                last[storage] = op.rank - 1 if storage == op.overwrites else ends.get(op.rank, op.rank)
    end = len(ops) - 1
    return {s: Lifetime(born[s], end if s in kept else last[s]) for s in born}


def live_bytes(
    ops: Sequence[Op], storages: Sequence[Storage], alive: dict[int, Lifetime], sizes: Sequence[int] | None = None
) -> list[int]:
    """Device bytes alive while each op runs: residents, what it reads and makes, and all that is read later.

    `sizes` gives other bytes per storage than the traced ones, such as measured ones.
    """
    size = [s.bytes for s in storages] if sizes is None else sizes
    change = [0] * (len(ops) + 1)
    for index, lifetime in alive.items():
        change[lifetime.created] += size[index]
        change[lifetime.last + 1] -= size[index]
    live, total = [], sum(size[s.index] for s in storages if s.resident)
    for rank in range(len(ops)):
        total += change[rank]
        live.append(total)
    return live


def activation_uses(ops: Sequence[Op], storages: Sequence[Storage]) -> tuple[ActivationUses, ...]:
    """The uses of every activation, in order of creation; in a rewritten step, of the instances that backward reads."""
    forward: dict[int, int] = {}
    backward: dict[int, list[int]] = {}
    for op in ops:
        if op.is_view:
            continue
        for storage in op.reads:
            if op.phase is Phase.FORWARD:
                forward[storage] = op.rank
            else:
                backward.setdefault(storage, []).append(op.rank)
    return tuple(
        ActivationUses(s.index, s.maker, forward.get(s.index, s.maker), backward[s.index][0], backward[s.index][-1])
        for s in storages
        if s.role is Role.ACTIVATION and s.maker is not None and s.index in backward
    )
