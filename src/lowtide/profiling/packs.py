"""What packing costs: each kind and shape of packable activation is packed and unpacked, and measured."""

from statistics import median

import torch
from torch import Tensor

from lowtide.device.clock import Clock
from lowtide.device.meter import Meter
from lowtide.graph.step_graph import StepGraph
from lowtide.graph.storing import Packing
from lowtide.records.profile import PackRecord
from lowtide.watching.watcher import collector_waits

_RUNS = 5


def pack_records(graph: StepGraph, clock: Clock, meter: Meter) -> tuple[PackRecord, ...]:
    """One record per packable activation; equal shapes are measured once."""
    measured: dict[tuple[object, ...], tuple[float, float, int, int]] = {}
    records = []
    with collector_waits(), torch.random.fork_rng(devices=[]):
        for packing in graph.packings:
            value = packing.node.meta["val"]
            key = (packing.kind, packing.on, tuple(value.shape), tuple(value.stride()), value.dtype)
            if key not in measured:
                measured[key] = _measure(packing, graph.device, clock, meter)
            records.append(PackRecord(packing.storage, packing.kind, packing.bytes, *measured[key]))
    return tuple(records)


def _measure(packing: Packing, device: torch.device, clock: Clock, meter: Meter) -> tuple[float, float, int, int]:
    """Median milliseconds and largest workspace, of packing and of unpacking a made-up value."""
    value = packing.node.meta["val"]
    real = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    real.copy_(torch.rand(value.shape).gt_(0.5).mul_(packing.on or 1.0))
    pack, keywords = packing.pack
    unpack, shape, options = packing.unpack
    times: list[tuple[float, float]] = []
    taken: list[tuple[int, int]] = []
    for _ in range(_RUNS + 1):
        meter.start()
        clock.start()
        small = pack(real, **keywords)
        packed = clock.stop()
        packing_took = meter.stop().peak - packing.bytes
        meter.start()
        clock.start()
        again: Tensor = unpack(small, *shape, **options)
        times.append((packed, clock.stop()))
        taken.append((packing_took, meter.stop().peak - again.untyped_storage().nbytes()))
        del small, again
    out, back = zip(*times[1:], strict=True)
    first, second = zip(*taken[1:], strict=True)
    return median(out), median(back), max(0, *first), max(0, *second)
