"""Collectives timed apart from the step: a few sizes on the real group, all ranks starting together.

Inside of a step a collective also takes as long as the slowest rank lets the others wait, now here, now there.
A plan wants the time of the link alone, what of it is compute's before and behind the flight, and what the flight takes
from compute: gloo sums on the cores that compute uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from statistics import median
from typing import Any

import torch

from lowtide.device.clock import clock_for
from lowtide.device.swap.measure import compute_of_a_while
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.collectives import COLLECTIVES, STARTS, all_reduce, all_reduce_total, gather, shard_rows
from lowtide.kernels.collectives import Flight as InFlight
from lowtide.kernels.dispatch import below_autograd
from lowtide.parallel.ranks import Ranks
from lowtide.planning.flights import Flight
from lowtide.profiling.beside import Links
from lowtide.records.profile import Profile
from lowtide.records.transfer import between

RUNS = 3
"""Of each size, of which the median counts; one more comes before."""
BESIDE, AT_ONCE = 2**20, 4
"""Elements of the collectives beside which compute is measured, and how many: together they hold no more than the
largest of the step, which fits."""
SMALLEST, APART = 4096, 16
"""Elements of the smallest size, and how many times larger the next one is, up to the largest that the step has."""


def with_link_times(profile: Profile, graph: StepGraph, ranks: Ranks) -> tuple[Profile, Links]:
    """`profile`, which is of `graph` and the same on all `ranks`, with the times of collectives read off a table that
    is measured here, and how they divide; the slowest rank counts."""
    if ranks.alone:
        return profile, {}
    kinds: dict[tuple[Any, ...], list[Op]] = {}
    for op in graph.ops:
        if op.node.target in COLLECTIVES:
            kinds.setdefault(_kind(op), []).append(op)
    found: dict[str, float] = {}
    links: dict[str, Flight] = {}
    with below_autograd():
        for ops in kinds.values():
            sizes = _sizes(max(_elements(op) for op in ops))
            measured = [ranks.largest(_measured(ops[0], size, graph.device, ranks)) for size in sizes]
            (drag,) = ranks.largest([_drag(ops[0], max(1, min(BESIDE, sizes[-1] // AT_ONCE)), graph.device, ranks)])
            for op in ops:
                parts = (between(sizes, times, _elements(op)) for times in zip(*measured, strict=True))
                start, flight, wait = parts
                found[op.node.name] = start + flight + wait
                links[op.node.name] = Flight(start, wait, drag * flight)
    records = (replace(record, runtime_ms=found.get(record.name, record.runtime_ms)) for record in profile.ops)
    return replace(profile, ops=tuple(records)), links


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


def _measured(op: Op, size: int, device: torch.device, ranks: Ranks) -> tuple[float, ...]:
    """Milliseconds of a collective as `op`, of `size` elements: until it is under way, then until there is nothing to
    wait for, and of what is done then."""
    clock, times = clock_for(device), []
    for _ in range(RUNS + 1):
        started, parts = _starter(op, size, device, ranks), []
        clock.start()
        flight = started()
        parts.append(clock.stop())
        clock.start()
        flight.wait()
        parts.append(clock.stop())
        clock.start()
        flight.finish()
        times.append((*parts, clock.stop()))
    return tuple(median(part) for part in zip(*times[1:], strict=True))


def _starter(op: Op, size: int, device: torch.device, ranks: Ranks) -> Callable[[], InFlight]:
    """What starts a collective as `op`, of `size` elements, when all ranks are here."""
    given, others = _arguments(op)
    sent = [torch.zeros((size,), dtype=given[0].meta["val"].dtype, device=device)]
    target: Any = all_reduce if op.node.target is all_reduce_total else op.node.target
    rows = ([size * others[0]],) if target is gather else ()
    ranks.any(False)
    return lambda: STARTS[target](sent, *rows, *others, **op.node.kwargs)


def _drag(op: Op, size: int, device: torch.device, ranks: Ranks) -> float:
    """Of a collective's time under way the share that compute beside it loses; alone and beside some in turn, on all
    ranks at once; medians."""
    work, clock = compute_of_a_while(device, rounds=1), clock_for(device)
    work()
    _, under_way, _ = ranks.largest(_measured(op, size, device, ranks))
    alone, beside = [], []
    for _ in range(RUNS):
        ranks.any(False)
        clock.start()
        work()
        alone.append(clock.stop())
        starts = [_starter(op, size, device, ranks) for _ in range(AT_ONCE)]
        flights = [start() for start in starts]
        clock.start()
        work()
        beside.append(clock.stop())
        for flight in flights:
            flight.finish()
    return max(0.0, median(beside) - median(alone)) / (AT_ONCE * under_way) if under_way else 0.0
