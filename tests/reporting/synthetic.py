"""Profiles made by hand: a chain of layers whose memory is easy to compute."""

from lowtide.records.profile import ActivationRecord, InnerOp, OpRecord, Profile, StorageRecord
from lowtide.records.vocabulary import Phase, Purpose, Role

KIB = 2**10


def chain(layers: int = 3, *, prefix: str = "", model: str = "chain", activations: bool = True) -> Profile:
    """`layers` forward ops, as many backward ops, one update; every storage is a KiB. `prefix` goes before names."""
    storages = [StorageRecord(f"{prefix}weight{k}", KIB, Role.PARAMETER, True, None, None) for k in range(layers)]
    end = 2 * layers
    saved = range(layers) if activations else range(0)
    storages += [StorageRecord(f"{prefix}fw{k}", KIB, Role.ACTIVATION, False, k, end - 1 - k) for k in saved]
    gradient = len(storages)
    storages += [StorageRecord(f"{prefix}bw{k}", KIB, Role.GRADIENT, False, layers + k, end) for k in range(layers)]
    born = [0] * (end + 2)
    for storage in storages:
        if storage.created is not None and storage.last is not None:
            born[storage.created] += storage.bytes
            born[storage.last + 1] -= storage.bytes
    alive = layers * KIB
    made: dict[int | None, int] = {s.created: i for i, s in enumerate(storages) if not s.resident}
    ops: list[OpRecord] = []
    for rank in range(end + 1):
        phase = Phase.FORWARD if rank < layers else Phase.BACKWARD if rank < end else Phase.OPTIMIZER
        layer = rank if rank < layers else end - 1 - rank
        makes = (made[rank],) if rank in made else ()
        alive += born[rank]
        workspace = 512 if phase is Phase.BACKWARD else 0
        ops.append(
            OpRecord(
                rank=rank,
                name=f"{prefix}op{rank}",
                op=f"aten.{prefix}{phase.value}",
                phase=phase,
                module="" if phase is Phase.OPTIMIZER else f"{prefix}layers.{layer}",
                source=f"{prefix}model.py:{rank}",
                role=storages[makes[0]].role if makes else Role.PARAMETER,
                runtime_ms=1.0 + rank,
                runtime_spread_ms=0.25,
                active_mem_B=alive,
                peak_mem_B=alive + workspace,
                output_B=sum(storages[i].bytes for i in makes),
                workspace_B=workspace,
                shape=(16, 16),
                dtype="float32",
                reads=(),
                writes=makes,
                makes=makes,
                forward=layer if phase is Phase.BACKWARD else None,
                is_view=False,
                is_random=False,
                is_effect=phase is Phase.OPTIMIZER,
                overwrites=None,
                repeats=phase is not Phase.OPTIMIZER,
                purpose=Purpose.PROGRAM,
                alone_B=0,
                inner=(InnerOp(f"aten.{prefix}add_", layers, 0.5, 64),) if phase is Phase.OPTIMIZER else (),
            )
        )
    records = [
        ActivationRecord(
            name=ops[k].name,
            storage=layers + k,
            module=ops[k].module,
            source=ops[k].source,
            created=k,
            last_fw_use=min(k + 1, layers - 1),
            first_bw_use=end - 1 - k,
            last_bw_use=end - 1 - k,
            memory_size_B=KIB,
            inactive_time_ms=float(layers - k),
            swap_time_ms=1.0,
            recomp_time_ms=1.0 + k,
            recomp_memory_B=KIB,
            recompute_ratio=KIB / (1.0 + k),
            recomp_srcs=(),
            recomp_ops=(k,),
        )
        for k in saved
    ]
    assert gradient == layers + len(records)
    return _profile(storages, ops, records, f"{prefix}{model}", tuple(f"{prefix}layers.{k}" for k in range(layers)))


def one_op() -> Profile:
    """A step of a single op that holds nothing."""
    op = chain(1).ops[0]
    holds_nothing = {"reads": (), "writes": (), "makes": (), "output_B": 0}
    lonely = OpRecord(**{name: getattr(op, name) for name in OpRecord.__slots__} | holds_nothing)
    return _profile([], [lonely], [], "one", ())


def _profile(
    storages: list[StorageRecord],
    ops: list[OpRecord],
    activations: list[ActivationRecord],
    model: str,
    layers: tuple[str, ...],
) -> Profile:
    return Profile(
        model=model,
        optimizer="Adam",
        batch=("x: float32[16, 16] on cpu",),
        device="cpu",
        device_memory_B=2**34,
        memory_source="allocator shim",
        torch="2.13.0",
        threads=2,
        warmup=1,
        runs=3,
        step_ms=sum(op.runtime_ms for op in ops),
        step_spread_ms=0.5,
        step_peak_B=max(op.peak_mem_B for op in ops),
        storages=tuple(storages),
        ops=tuple(ops),
        activations=tuple(activations),
        packs=(),
        transfer=(),
        transfer_tier="disk",
        transfer_drag=0.0,
        layers=layers,
    )
