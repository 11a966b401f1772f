"""After an exception inside a step: what has changed already, said exactly."""

from lowtide.graph.ops import Op
from lowtide.graph.program import FILE_NAME
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Ledger
from lowtide.profiling.runs import failing_op

_NAMED = 5


def describe_failure(
    graph: StepGraph, ledger: Ledger, error: BaseException, *, accumulating: bool, undone: bool = False
) -> str:
    """Which op failed, which parameters had moved by then, which buffers had changed."""
    op = failed_op(graph, error)
    where = f"at op {op.rank} of {len(graph.ops)} ({op.name}, {op.module or 'root'}, {op.source})" if op else "early"
    names = {id(t): n.meta["lowtide_name"] for n, t in zip(graph.graph.nodes, graph.residents, strict=False)}
    moved = [str(names[id(p)]) for p in ledger.moved]
    trained = sum(len(op.outputs) for op in graph.ops if op.is_update)
    said = [f"lowtide: the step failed {where}."]
    if moved:
        said.append(f"{len(moved)} of {trained} parameters had been updated by then: {_some(moved)}.")
    else:
        said.append("No parameter had been updated.")
    if ledger.moving:
        said.append(f"The optimizer was updating {_some([str(names[id(p)]) for p in ledger.moving])}.")
    changed = [] if op is None else _changed_buffers(graph, op)
    if undone:
        said.append("Buffers and random generator are as they were before: the step has not happened.")
    elif changed:
        said.append(f"{len(changed)} buffers had changed: {_some(changed)}.")
    if accumulating:
        said.append("The gradients accumulated so far are dropped: the next call is the first micro-step again.")
    return " ".join(said)


def failed_op(graph: StepGraph, error: BaseException) -> Op | None:
    """The op whose line in the program raised, or at which a run op by op stood."""
    trace = error.__traceback__
    line = None
    while trace is not None:
        op = failing_op(trace.tb_frame)
        if op is not None:
            return op
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    rank = None if line is None else graph.program.rank_of_line.get(line)
    return None if rank is None else graph.ops[rank]


def _changed_buffers(graph: StepGraph, failed: Op) -> list[str]:
    found = (s for op in graph.ops[: failed.rank] if op.is_effect and not op.is_update for s in op.writes)
    return list(dict.fromkeys(graph.storages[s].name for s in found if graph.storages[s].resident))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
