"""Sees the aten ops that run inside one op of the graph, such as the optimizer's."""

from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from lowtide.device.clock import Clock
from lowtide.device.meter import Meter
from lowtide.records.profile import InnerOp


class InnerOps(TorchDispatchMode):
    """Counts, times and weighs every aten call made while it is on."""

    def __init__(self, clock: Clock, meter: Meter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock, self._meter = clock, meter
        self._seen: dict[str, tuple[int, float, int]] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace == "profiler":
            return func(*args, **(kwargs or {}))
        self._meter.start()
        self._clock.start()
        out = func(*args, **(kwargs or {}))
        spent = self._clock.stop()  # the device's time: on CUDA the call returns before the work is done
        taken = self._meter.stop().peak
        count, time, peak = self._seen.get(str(func), (0, 0.0, 0))
        self._seen[str(func)] = (count + 1, time + spent, max(peak, taken))
        return out

    def records(self) -> tuple[InnerOp, ...]:
        """What was seen, in order of first call."""
        return tuple(InnerOp(op, count, time, peak) for op, (count, time, peak) in self._seen.items())
