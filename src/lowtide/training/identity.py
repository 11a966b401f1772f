"""Which step a graph is: what a saved plan is held against."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from lowtide.graph.program import arguments_text
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.collectives import COLLECTIVES
from lowtide.optimizer.update import UpdateForm, describe
from lowtide.records.step_plan import Identity


def op_lines(graph: StepGraph) -> list[str]:
    """Every op in a line, without what may differ between ranks: the sizes of shards."""
    found = []
    for op in graph.ops:
        made = "" if op.is_update else ", ".join(map(str, op.outputs))
        place = f" ({op.module or 'root'}, {op.source})"
        found.append(f"{op.name} = {op.op}({_arguments(op.node)}) -> {made}{place}")
    return found


def identity(graph: StepGraph, *, numbers: bool = True) -> Identity:
    """Which step this is; without `numbers`, whatever the floats among its arguments are."""
    digest = hashlib.sha256()
    spread = any(op.node.target in COLLECTIVES for op in graph.ops)
    for op in graph.ops:
        made = "" if spread and op.is_update else ", ".join(f"{made}@{made.storage}" for made in op.outputs)
        arguments = _arguments(op.node) if numbers else _without_numbers((op.node.args, op.node.kwargs))
        digest.update(f"{op.name} {op.op}({arguments}) {op.reads} -> {made}\n".encode())
    for storage in graph.storages:
        size = "a share" if spread and storage.resident else storage.bytes  # the last rank may hold less of it
        digest.update(f"{size} {storage.resident}\n".encode())
    return Identity(
        model=type(graph.model).__name__,
        optimizer=describe(graph.optimizer),
        batch=graph.form.lines,
        device=graph.device.type,
        torch=str(torch.__version__),
        ending=_ending(graph.ending),
        graph=digest.hexdigest(),
    )


def _arguments(node: fx.Node) -> str:
    """As text, without the names of process groups: each rank, and each run, has its own."""
    text = arguments_text(node, {})
    if node.target in COLLECTIVES:
        for name in (x for x in (*node.args, *node.kwargs.values()) if isinstance(x, str)):
            text = text.replace(repr(name), "group")
    return text


def _without_numbers(value: Any) -> str:
    if isinstance(value, float):
        return "#"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_without_numbers, value))}]"
    if isinstance(value, Mapping):
        return _without_numbers([x for pair in value.items() for x in pair])
    return str(value)


def _ending(ending: UpdateForm) -> str:
    clipped = "" if ending.clip is None else f", clipped to {ending.clip}"
    return f"{ending.micro} step{clipped}{', gradients kept' if ending.keep else ''}"
