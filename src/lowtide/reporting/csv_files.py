"""The tables: one CSV row per op, per activation and per aten op inside the optimizer."""

import json
from pathlib import Path

from lowtide.files import write_csv
from lowtide.records.profile import Profile

NODE_COLUMNS = (
    *("rank", "name", "op", "phase", "module", "role", "runtime_ms", "active_mem_B", "peak_mem_B", "output_B"),
    *("workspace_B", "shape", "dtype", "runtime_spread_ms", "source", "layer"),
)
ACTIVATION_COLUMNS = (
    *("name", "created", "last_fw_use", "first_bw_use", "last_bw_use", "memory_size_B", "inactive_time_ms"),
    *("swap_time_ms", "recomp_time_ms", "recomp_memory_B", "recompute_ratio", "module", "source"),
)
OPTIMIZER_COLUMNS = ("rank", "name", "op", "count", "runtime_ms", "peak_B")


def write_node_stats(profile: Profile, path: Path) -> None:
    """One row per op, in the order of execution; `shape` is a JSON list."""
    rows = (
        [
            *(op.rank, op.name, op.op, op.phase.value, op.module, op.role.value, _ms(op.runtime_ms)),
            *(op.active_mem_B, op.peak_mem_B, op.output_B, op.workspace_B, json.dumps(op.shape), op.dtype),
            *(_ms(op.runtime_spread_ms), op.source, layer),
        ]
        for op, layer in zip(profile.ops, profile.layer_of, strict=True)
    )
    write_csv(path, NODE_COLUMNS, rows)


def write_activation_stats(profile: Profile, path: Path) -> None:
    """One row per activation, in the order of creation."""
    rows = (
        [
            *(a.name, a.created, a.last_fw_use, a.first_bw_use, a.last_bw_use, a.memory_size_B),
            *(_ms(a.inactive_time_ms), _ms(a.swap_time_ms), _ms(a.recomp_time_ms), a.recomp_memory_B),
            *(round(a.recompute_ratio, 3), a.module, a.source),
        ]
        for a in profile.activations
    )
    write_csv(path, ACTIVATION_COLUMNS, rows)


def write_optimizer_stats(profile: Profile, path: Path) -> None:
    """One row per kind of aten op inside each update; `rank` and `name` are the update's."""
    rows = (
        [op.rank, op.name, inner.op, inner.count, _ms(inner.runtime_ms), inner.peak_B]
        for op in profile.ops
        for inner in op.inner
    )
    write_csv(path, OPTIMIZER_COLUMNS, rows)


def _ms(value: float) -> float:
    """To the nanosecond."""
    return round(value, 6)
