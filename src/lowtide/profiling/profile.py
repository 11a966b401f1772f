"""`lowtide.profile`: time and memory of every op of a captured step, measured."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from lowtide.device.clock import Clock, clock_for, total_memory
from lowtide.device.meter import Meter, meter_for
from lowtide.device.swap import measure_copies, open_space, usual_tier
from lowtide.errors import InputError
from lowtide.graph.liveness import live_bytes
from lowtide.graph.ops import run_ends
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import describe, is_foreach
from lowtide.profiling.activations import activation_records
from lowtide.profiling.op_record import op_record
from lowtide.profiling.packs import pack_records
from lowtide.profiling.runs import (
    Learned,
    OpByOp,
    PlainRun,
    as_captured,
    no_collection,
    run_op_by_op,
    run_plain,
    state_bytes,
)
from lowtide.profiling.untouched import untouched
from lowtide.records.profile import OpRecord, Profile, StorageRecord
from lowtide.records.transfer import TransferSample
from lowtide.records.vocabulary import Role

Progress = Callable[[int, int, str], None]
"""Called as `progress(done, total, what)`, once per op of every run."""


def profile(
    graph: StepGraph,
    batch: Any = None,
    *,
    warmup: int = 1,
    runs: int = 3,
    quick: bool = False,
    through: StepGraph | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Run `graph` op by op on real tensors (the captured batch, or `batch`) and measure.

    `warmup` runs are thrown away; of the `runs` measured ones the median is kept, with the spread. Between them the
    plain program runs, which gives the step's time and peak in the same session. Parameters, buffers, optimizer and
    random generators are afterwards as they were before. With `quick` the plain program runs only once, and transfers
    are not measured. `through` is the same step rewritten to need less memory: its runs are measured instead, and the
    captured step's time and peak are what they add up to.
    """
    if warmup < 1 or runs < 1:
        raise InputError(f"a profile needs at least one warm-up and one measured run, not {warmup} and {runs}")
    tensors = graph.form.tensors(graph.example if batch is None else batch)
    clock, meter = clock_for(graph.device), meter_for(graph.device)
    runner = through or graph
    done, total = 0, len(runner.ops) * (warmup + runs)

    def tick(what: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, what)

    seen = Runs(Learned(), {})
    with no_collection(), untouched(graph, tensors):
        if not quick:
            run_plain(runner, tensors, clock, meter)  # a fresh optimizer makes its state here, and never again
        for number in range(warmup):
            learned = None if number else seen.learned
            run_op_by_op(
                runner, tensors, clock, meter, lambda op: tick(f"warm-up: {op.phase}"), learned=learned, inside=True
            )
        seen.state = state_bytes(graph)
        for number in range(1, runs + 1):
            label = f"run {number} of {runs}"
            seen.measured.append(
                run_op_by_op(runner, tensors, clock, meter, lambda op, label=label: tick(f"{label}: {op.phase}"))  # type: ignore[misc]
            )
            if through is None and (not quick or number == runs):
                seen.plain.append(run_plain(graph, tensors, clock, meter))
    return profile_of(graph, seen, through, clock, meter, warmup=warmup, quick=quick)


@dataclass
class Runs:
    """What was seen of a step: of its ops one by one, and of the whole."""

    learned: Learned
    state: dict[str, int]
    """Bytes of the optimizer's state when it is there."""
    measured: list[OpByOp] = field(default_factory=list)
    plain: list[PlainRun] = field(default_factory=list)


def profile_of(
    graph: StepGraph, seen: Runs, through: StepGraph | None, clock: Clock, meter: Meter, *, warmup: int, quick: bool
) -> Profile:
    """The record of runs of `graph`, or of `through`, which is `graph` rewritten."""
    learned, measured, plain, state = seen.learned, seen.measured, seen.plain, seen.state
    if through is not None:
        learned, measured = as_captured(graph, through, learned, measured)
    known = {storage.name for storage in graph.storages if storage.role is Role.OPTIMIZER_STATE}
    unforeseen = {name: size for name, size in state.items() if name not in known}
    sizes = [
        state.get(storage.name, storage.bytes)
        if storage.role is Role.OPTIMIZER_STATE
        else learned.bytes.get(storage.index, storage.bytes)
        for storage in graph.storages
    ]
    largest = max((sizes[uses.storage] for uses in graph.activations), default=0)
    tier, transfer = ("", ()) if quick else measure_transfer(graph.device, largest)
    packs = pack_records(graph, clock, meter)
    workspaces = _workspaces(graph, measured, plain, sizes)
    times = [median(run.times[op.rank] for run in measured) for op in graph.ops]
    resident = sum(size for storage, size in zip(graph.storages, sizes, strict=True) if storage.resident)
    resident += sum(unforeseen.values())
    ops = _op_records(graph, times, measured, workspaces, sizes, learned, sum(unforeseen.values()))
    return Profile(
        model=type(graph.model).__name__,
        optimizer=describe(graph.optimizer),
        batch=graph.form.lines,
        device=str(graph.device),
        device_memory_B=total_memory(graph.device),
        memory_source=meter.name,
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        warmup=warmup,
        runs=len(measured),
        step_ms=median(run.time for run in plain) if plain else sum(times),
        step_spread_ms=max(run.time for run in plain) - min(run.time for run in plain) if plain else 0.0,
        step_peak_B=resident + max(run.peak for run in plain) if plain else max(op.peak_mem_B for op in ops),
        storages=_storage_records(graph, sizes, unforeseen),
        ops=ops,
        activations=activation_records(graph, times, sizes, transfer),
        packs=packs,
        transfer=transfer,
        transfer_tier=tier,
        transfer_drag=0.0,
        layers=graph.layers,
    )


def _workspaces(graph: StepGraph, measured: list[OpByOp], plain: list[PlainRun], sizes: list[int]) -> list[int]:
    """Bytes that each op takes beyond its outputs; of updates that run together, the largest has what they all take."""
    found = [
        max(0, max(run.taken[op.rank].peak for run in measured) - sum(sizes[s] for s in op.makes)) for op in graph.ops
    ]
    together: dict[int, list[int]] = {}
    for rank, end in run_ends(graph.ops).items():
        together.setdefault(end, []).append(rank)
    for number, (_, ranks) in enumerate(sorted(together.items())):
        largest = max(ranks, key=found.__getitem__)
        if plain:
            found[largest] = max(found[largest], *(run.steps[number] for run in plain))
        else:  # foreach holds the temporaries of all, a for-loop those of one until the next one's are there
            count = len(ranks) if is_foreach(graph.optimizer) else 2
            found[largest] = sum(sorted((found[rank] for rank in ranks), reverse=True)[:count])
    return found


def _storage_records(graph: StepGraph, sizes: list[int], unforeseen: dict[str, int]) -> tuple[StorageRecord, ...]:
    """The graph's storages with their true sizes, then the optimizer's state that the graph did not foresee."""
    records = []
    for storage in graph.storages:
        life = graph.lifetimes.get(storage.index)
        records.append(
            StorageRecord(
                name=storage.name,
                bytes=sizes[storage.index],
                role=storage.role,
                resident=storage.resident,
                created=life.created if life else None,
                last=life.last if life else None,
            )
        )
    extra = [StorageRecord(name, size, Role.OPTIMIZER_STATE, True, None, None) for name, size in unforeseen.items()]
    return (*records, *extra)


def _op_records(
    graph: StepGraph,
    times: list[float],
    measured: list[OpByOp],
    workspaces: list[int],
    sizes: list[int],
    learned: Learned,
    unforeseen: int,
) -> tuple[OpRecord, ...]:
    active = [live + unforeseen for live in live_bytes(graph.ops, graph.storages, graph.lifetimes, sizes)]
    return tuple(
        op_record(
            op,
            times=[run.times[op.rank] for run in measured],
            runtime_ms=times[op.rank],
            live=active[op.rank],
            workspace=workspaces[op.rank],
            sizes=sizes,
            alone=max((run.taken[op.rank].peak for run in measured), default=0),
            inner=learned.inner.get(op.rank, ()),
        )
        for op in graph.ops
    )


def measure_transfer(device: torch.device, largest: int) -> tuple[str, tuple[TransferSample, ...]]:
    """Where swapped bytes would go (disk for CPU tensors, host memory for CUDA tensors), and the measured time of each
    direction for sizes up to about `largest`."""
    with closing(open_space(usual_tier(device), device)) as space:
        return space.kind, measure_copies(space, largest)
