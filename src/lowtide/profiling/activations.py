"""The mu-TWO metrics of every activation, from the graph and the measured times."""

from collections.abc import Sequence

from lowtide.graph.ops import Op, Storage
from lowtide.graph.step_graph import StepGraph
from lowtide.records.profile import ActivationRecord
from lowtide.records.transfer import TransferSample, copy_ms
from lowtide.records.vocabulary import Role


def activation_records(
    graph: StepGraph, times: Sequence[float], sizes: Sequence[int], transfer: Sequence[TransferSample]
) -> tuple[ActivationRecord, ...]:
    """One record per activation, in order of creation; `sizes` are bytes per storage."""
    until = [0.0]
    for time in times:
        until.append(until[-1] + time)
    records = []
    for uses in graph.activations:
        maker = graph.ops[uses.created]
        sources, again = recomputation(uses.storage, graph.ops, graph.storages)
        spent = max(sum(times[rank] for rank in again), 1e-6)
        size = sizes[uses.storage]
        records.append(
            ActivationRecord(
                name=_name(maker, uses.storage),
                storage=uses.storage,
                module=maker.module,
                source=maker.source,
                created=uses.created,
                last_fw_use=uses.last_fw_use,
                first_bw_use=uses.first_bw_use,
                last_bw_use=uses.last_bw_use,
                memory_size_B=size,
                inactive_time_ms=until[uses.first_bw_use] - until[uses.last_fw_use + 1],
                swap_time_ms=max(copy_ms(transfer, size)) if transfer else 0.0,
                recomp_time_ms=spent,
                recomp_memory_B=_most_bytes(again, uses.storage, graph.ops, sizes),
                recompute_ratio=size / spent,
                recomp_srcs=sources,
                recomp_ops=again,
            )
        )
    return tuple(records)


def recomputation(
    storage: int, ops: Sequence[Op], storages: Sequence[Storage]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The activations that `storage` is made again from (residents are always there), and the ops that do it."""
    sources: set[int] = set()
    again: set[int] = set()
    wanted = [storage]
    while wanted:
        maker = storages[wanted.pop()].maker
        if maker is None or maker in again:
            continue
        again.add(maker)
        for read in ops[maker].reads:
            if storages[read].role is Role.ACTIVATION and storages[read].maker != maker:
                sources.add(read)
            elif not storages[read].resident:
                wanted.append(read)
    return tuple(sorted(sources)), tuple(sorted(again))


def _most_bytes(again: Sequence[int], wanted: int, ops: Sequence[Op], sizes: Sequence[int]) -> int:
    """The most bytes alive while `again` runs in order, its sources not counted, `wanted` kept to the end."""
    made = {s for rank in again for s in ops[rank].makes}
    last = {s: rank for rank in again for s in (*ops[rank].makes, *ops[rank].reads) if s in made}
    live = most = 0
    for rank in again:
        live += sum(sizes[s] for s in ops[rank].makes)
        most = max(most, live)
        live -= sum(sizes[s] for s, end in last.items() if end == rank and s != wanted)
    return most


def _name(maker: Op, storage: int) -> str:
    """The first tensor on the storage; an op with several outputs makes several activations."""
    return next((made.name for made in maker.outputs if made.storage == storage), maker.name)
