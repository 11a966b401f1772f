"""A step measured while it trains: its first runs, op by op, are the user's own."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lowtide.device.clock import clock_for
from lowtide.device.meter import Taken, meter_for
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Ledger
from lowtide.profiling.profile import Runs, profile_of
from lowtide.profiling.runs import Learned, state_bytes, train_op_by_op, train_plain
from lowtide.records.profile import Profile

RUNS = 3
"""Runs op by op. The first shows how large storages are; its times, of cold memory, count where there are no others."""


class Measuring:
    """The first steps of a training by `through`, or by `graph` itself, of which a profile of `graph` is made."""

    def __init__(self, graph: StepGraph, through: StepGraph | None) -> None:
        self.steps = 0
        """That were measured so far."""
        self._graph, self._through = graph, through
        self._clock, self._meter = clock_for(graph.device), meter_for(graph.device)
        self._seen = Runs(Learned(), {})

    @property
    def wanted(self) -> int:
        """How many steps are measured: where the step runs as captured, one more as a whole."""
        return RUNS + (self._through is None)

    def run(self, batch: Sequence[Tensor], ledger: Ledger) -> tuple[Any, int]:
        """One step of training, measured: what it returns, and the most bytes that it took at once."""
        runner = self._through or self._graph
        if len(self._seen.measured) < RUNS:
            learned = None if self._seen.measured else Learned()
            measured, outputs = train_op_by_op(runner, batch, self._clock, self._meter, ledger, learned)
            if learned is not None:
                measured.taken = [_without_state(op, x) for op, x in zip(runner.ops, measured.taken, strict=True)]
                self._seen.learned, self._seen.state = learned, state_bytes(self._graph)
            self._seen.measured.append(measured)
            peak = measured.peak
        else:
            plain, outputs = train_plain(runner, batch, self._clock, self._meter, ledger)
            self._seen.plain.append(plain)
            peak = plain.peak
        self.steps += 1
        return runner.returned(outputs), peak

    def profile(self) -> Profile:
        """What the steps so far have shown."""
        assert self.steps, "nothing was measured"
        warm = self._seen.measured[1:]
        seen = Runs(self._seen.learned, self._seen.state, warm or self._seen.measured, self._seen.plain)
        return profile_of(self._graph, seen, self._through, self._clock, self._meter, warmup=bool(warm), quick=True)


def _without_state(op: Op, taken: Taken) -> Taken:
    """What stays of an update is the optimizer's state, which it makes once."""
    return Taken(taken.peak - taken.net, 0) if op.is_update else taken
