"""Collectives timed apart from the step: a few sizes on the real group, all ranks starting together.

Inside of a step a collective also takes as long as the slowest rank lets the others wait, now here, now there.
A plan wants the time of the link alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from statistics import median
from typing import Any

import torch

from lowtide.device.clock import clock_for
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.collectives import COLLECTIVES, all_reduce, all_reduce_total, gather, shard_rows
from lowtide.kernels.dispatch import below_autograd
from lowtide.parallel.ranks import Ranks
from lowtide.records.profile import Profile
from lowtide.records.transfer import between

RUNS = 3
"""Of each size, of which the median counts; one more comes before."""
SMALLEST, APART = 4096, 16
"""Elements of the smallest size, and how many times larger the next one is, up to the largest that the step has."""


def with_link_times(profile: Profile, graph: StepGraph, ranks: Ranks) -> Profile:
    """`profile`, which is of `graph` and the same on all `ranks`, with the times of collectives read off a table that
    is measured here; the slowest rank counts."""
    if ranks.alone:
        return profile
    kinds: dict[tuple[Any, ...], list[Op]] = {}
    for op in graph.ops:
        if op.node.target in COLLECTIVES:
            kinds.setdefault(_kind(op), []).append(op)
    found: dict[str, float] = {}
    with below_autograd():
        for ops in kinds.values():
            sizes = _sizes(max(_elements(op) for op in ops))
            times = ranks.largest([_measured(ops[0], size, graph.device, ranks) for size in sizes])
            found |= {op.node.name: between(sizes, times, _elements(op)) for op in ops}
    records = (replace(record, runtime_ms=found.get(record.name, record.runtime_ms)) for record in profile.ops)
    return replace(profile, ops=tuple(records))


def _kind(op: Op) -> tuple[Any, ...]:
    """Collectives of one kind differ in size alone."""
    given, others = _arguments(op)
    dtype = given[0].meta["val"].dtype
    return op.node.target, dtype, others, tuple(sorted(op.node.kwargs.items(), key=lambda item: item[0]))


def _arguments(op: Op) -> tuple[Sequence[Any], tuple[Any, ...]]:
    """The tensors that are sent, and what says how: world and group."""
    arguments: tuple[Any, ...] = op.node.args
    if op.node.target is gather:
        shards, _, *others = arguments
        return shards, tuple(others)
    given, *others = arguments[1:] if op.node.target is all_reduce_total else arguments
    return given, tuple(others)


def _elements(op: Op) -> int:
    """Of what this rank gives, the same on all ranks: shards have the rows of the longest."""
    given, (world, *_) = _arguments(op)
    shapes = [tensor.meta["val"].shape for tensor in given]
    if op.node.target is not gather:
        return sum(prod(shape) for shape in shapes)
    rows: Any = op.node.args[1]
    return sum(shard_rows(n, world) * prod(shape[1:]) for n, shape in zip(rows, shapes, strict=True))


def _sizes(largest: int) -> list[int]:
    """A few that rise, the largest is the last."""
    found = [largest]
    while found[-1] > SMALLEST * APART:
        found.append(found[-1] // APART)
    return [*([SMALLEST] if found[-1] > SMALLEST else []), *reversed(found)]


def _measured(op: Op, size: int, device: torch.device, ranks: Ranks) -> float:
    """Milliseconds of a collective as `op`, of `size` elements."""
    given, others = _arguments(op)
    sent = [torch.zeros((size,), dtype=given[0].meta["val"].dtype, device=device)]
    target: Any = all_reduce if op.node.target is all_reduce_total else op.node.target
    rows = ([size * others[0]],) if target is gather else ()
    clock, times = clock_for(device), []
    for _ in range(RUNS + 1):
        ranks.any(False)  # all are here
        clock.start()
        target(sent, *rows, *others, **op.node.kwargs)
        times.append(clock.stop())
    return median(times[1:])
