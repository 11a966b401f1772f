"""What keeping signs costs: a ReLU's bits and both forms of its backward, measured beside each other."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from lowtide.device.clock import Clock, clock_for
from lowtide.device.meter import Meter, meter_for
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.packing import pack_bits, sign_backward
from lowtide.records.profile import OpRecord, Profile, StorageRecord
from lowtide.records.vocabulary import Role
from lowtide.watching.watcher import collector_waits

_RUNS = 5
aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of one op."""

    ms: float
    workspace: int

    def of(self, record: OpRecord) -> OpRecord:
        return replace(record, runtime_ms=self.ms, workspace_B=self.workspace)


def sign_profiles(profile: Profile, signs: StepGraph) -> tuple[Profile, Profile]:
    """`profile` for the plain step and for its variant `signs`, with times of the ops that differ that can be compared.

    Ops are found by their names, so the order of those that only the variant has does not matter.
    """
    clock, meter = clock_for(signs.device), meter_for(signs.device)
    measured: dict[tuple[object, ...], tuple[_Cost, _Cost, _Cost]] = {}
    packing: dict[str, _Cost] = {}
    backward: dict[str, tuple[_Cost, _Cost]] = {}
    with collector_waits(), torch.random.fork_rng(devices=[]):
        for op in signs.ops:
            if op.node.target not in (pack_bits, sign_backward):
                continue
            source: Any = op.node.args[0]
            value = source.meta["val"]
            key = (tuple(value.shape), tuple(value.stride()), value.dtype)
            if key not in measured:
                measured[key] = _measure(value, signs.device, clock, meter)
            pack, with_signs, plain = measured[key]
            if op.node.target is pack_bits:
                packing[op.name] = pack
            else:
                backward[op.name] = with_signs, plain
    by_name = {record.name: record for record in profile.ops}
    storages, added = list(profile.storages), []
    for op in signs.ops:
        if op.name in packing:
            (bits,) = op.makes
            like = by_name[op.node.all_input_nodes[0].name]
            record = replace(like, name=op.name, op=op.op, makes=(len(storages),), output_B=signs.storages[bits].bytes)
            added.append(packing[op.name].of(record))
            storages.append(StorageRecord(op.name, signs.storages[bits].bytes, Role.ACTIVATION, False, None, None))
    first, second = (
        tuple(backward[record.name][k].of(record) if record.name in backward else record for record in profile.ops)
        for k in (1, 0)
    )
    return replace(profile, ops=first), replace(profile, ops=(*second, *added), storages=tuple(storages))


def _measure(value: torch.Tensor, device: torch.device, clock: Clock, meter: Meter) -> tuple[_Cost, _Cost, _Cost]:
    """Median milliseconds and largest workspace of packing, of the backward from bits, and of ReLU's own."""
    result, gradient = (
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device) for _ in "ab"
    )
    result.normal_().relu_()
    gradient.normal_()
    bits = pack_bits(result)
    costs = []
    for op, args in (
        (pack_bits, (result,)),
        (sign_backward, (gradient, bits)),
        (aten.threshold_backward.default, (gradient, result, 0)),
    ):
        times, taken = [], []
        for _ in range(_RUNS + 1):
            meter.start()
            clock.start()
            made = op(*args)
            times.append(clock.stop())
            taken.append(meter.stop().peak - made.untyped_storage().nbytes())
            del made
        costs.append(_Cost(median(times[1:]), max(0, *taken[1:])))
    pack, with_signs, plain = costs
    return pack, with_signs, plain
