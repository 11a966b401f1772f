"""What the peak of an op-by-op run is made of, by role."""

from collections.abc import Sequence

from lowtide.experiments.case import Part
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.runs import OpByOp
from lowtide.records.vocabulary import Role

WORKSPACE = "workspace"


def peak_parts(graph: StepGraph, runs: Sequence[OpByOp]) -> tuple[Part, ...]:
    """Bytes of every role, and of the op's workspace, at the highest op of `graph`; they add up to the peak."""
    extra = [
        max(0, max(run.taken[op.rank].peak for run in runs) - sum(graph.storages[s].bytes for s in op.makes))
        for op in graph.ops
    ]
    peak = max(range(len(graph.ops)), key=lambda rank: graph.live_bytes[rank] + extra[rank])
    sizes = dict.fromkeys(Role, 0)
    for storage in graph.storages:
        life = graph.lifetimes.get(storage.index)
        if storage.resident or (life is not None and life.created <= peak <= life.last):
            sizes[storage.role] += storage.bytes
    return (*(Part(role.value, size) for role, size in sizes.items()), Part(WORKSPACE, extra[peak]))
