"""An op of the graph as a record, with what was measured or estimated of it."""

from collections.abc import Sequence

from lowtide.graph.ops import Op
from lowtide.records.profile import InnerOp, OpRecord


def op_record(
    op: Op,
    *,
    times: Sequence[float],
    runtime_ms: float,
    live: int,
    workspace: int,
    sizes: Sequence[int],
    alone: int,
    inner: tuple[InnerOp, ...] = (),
) -> OpRecord:
    """`times` are those of single runs, `live` the bytes alive while it runs, `sizes` bytes per storage."""
    first = op.outputs[0] if op.outputs else None
    return OpRecord(
        rank=op.rank,
        name=op.name,
        op=op.op,
        phase=op.phase,
        module=op.module,
        source=op.source,
        role=op.role,
        runtime_ms=runtime_ms,
        runtime_spread_ms=max(times) - min(times) if times else 0.0,
        active_mem_B=live,
        peak_mem_B=live + workspace,
        output_B=sum(sizes[s] for s in op.makes),
        workspace_B=workspace,
        shape=first.shape if first else (),
        dtype=first.dtype if first else "",
        reads=op.reads,
        writes=op.writes,
        makes=op.makes,
        forward=op.forward,
        is_view=op.is_view,
        is_random=op.is_random,
        is_effect=op.is_effect,
        overwrites=op.overwrites,
        repeats=op.repeats,
        purpose=op.purpose,
        alone_B=alone if op.is_update else 0,
        inner=inner,
    )
