"""The captured step as readable Python: one line per op, with what is known about it behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch._ops import OpOverload

from lowtide.graph.program import arguments_text, function_of
from lowtide.optimizer.update import update
from lowtide.records.vocabulary import Purpose, Role
from lowtide.units import format_bytes

if TYPE_CHECKING:
    from lowtide.graph.ops import Op
    from lowtide.graph.step_graph import StepGraph

_WIDTH = 100


def listing(graph: StepGraph) -> str:
    """`print(graph)`: the program with phase, role, shape, live bytes and module beside each line."""
    peak = max(range(len(graph.ops)), key=graph.live_bytes.__getitem__)
    by_role = {role: sum(s.bytes for s in graph.storages if s.resident and s.role is role) for role in Role}
    lines = [
        f"# one training step of {type(graph.model).__name__} with "
        f"{'no optimizer' if graph.optimizer is None else type(graph.optimizer).__name__}: "
        f"{len(graph.ops)} ops, {len(graph.activations)} activations",
        f"# resident {format_bytes(graph.resident_bytes)}: "
        + ", ".join(f"{role} {format_bytes(size)}" for role, size in by_role.items() if size),
        f"# most bytes alive {format_bytes(graph.live_bytes[peak])} at op {peak} ({graph.ops[peak].name}), "
        "workspaces not counted",
        f"def step({', '.join(_inputs(graph))}):",
    ]
    phase = None
    for op in graph.ops:
        if op.phase != phase:
            phase = op.phase
            lines.append(f"    # {phase}")
        lines.append(_line(op, graph.live_bytes[op.rank]))
    return "\n".join(lines)


def _when(op: Op) -> str:
    return str(op.phase) if op.purpose is Purpose.PROGRAM else f"{op.phase}, {op.purpose}"


def _inputs(graph: StepGraph) -> list[str]:
    residents = sum(node.op == "placeholder" for node in graph.graph.nodes) - len(graph.form.tensor_paths)
    return [f"*residents[{residents}]", *(path.replace(" ", "") for path in graph.form.tensor_paths)]


def _line(op: Op, live: int) -> str:
    function = function_of(op)
    name = op.op if op.is_update else str(function) if isinstance(function, OpOverload) else function.__name__
    call = f"{name.removesuffix('.default')}({arguments_text(op.node, {})})"
    if op.node.target is not update:
        call = f"{', '.join(item.name for item in op.items) or op.name} = {call}"
    made = ", ".join(f"{made.role} {made}" + (" view" if op.is_view else "") for made in op.outputs)
    note = f"  # {op.rank} | {_when(op)} | {made or '-'} | live {format_bytes(live)} | {op.module or '(root)'}"
    if op.source:
        note += f" | {op.source}"
    return f"    {call:<{_WIDTH}}{note}"
