"""Measures captured steps against eager ones: the same model, step by step in turn, in one run."""

from collections.abc import Callable

import torch

from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.profile import profile
from lowtide.profiling.runs import no_collection, run_plain
from lowtide.profiling.untouched import untouched
from lowtide.records.comparison import Comparison

Progress = Callable[[int, int, str], None]


def against_eager(
    graph: StepGraph,
    eager_loss: Callable[[], torch.Tensor],
    *,
    name: str,
    steps: int = 5,
    warmup: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Alternate eager and captured steps on the captured batch; `eager_loss` runs the eager forward."""
    clock, meter = clock_for(graph.device), meter_for(graph.device)
    batch = graph.form.tensors(graph.example)
    eager: list[float] = []
    captured: list[float] = []
    peaks: dict[str, list[int]] = {"eager": [], "captured": []}
    with untouched(graph):
        for step in range(warmup + steps):
            graph.optimizer.zero_grad(set_to_none=True)
            with no_collection():
                meter.start()
                clock.start()
                eager_loss().backward()
                graph.optimizer.step()
                time, peak = clock.stop(), meter.stop().peak
            graph.optimizer.zero_grad(set_to_none=True)
            ours, taken = run_plain(graph, batch, clock, meter)
            if step >= warmup:
                eager.append(time)
                captured.append(ours)
                peaks["eager"].append(peak)
                peaks["captured"].append(taken.peak)
            if progress is not None:
                progress(step + 1, warmup + steps, "eager and captured steps")
    measured = profile(graph, runs=3, progress=progress)
    return Comparison(
        model=name,
        batch=measured.batch,
        optimizer=measured.optimizer,
        torch=measured.torch,
        threads=measured.threads,
        memory_source=meter.name,
        warmup=warmup,
        eager_ms=tuple(eager),
        captured_ms=tuple(captured),
        eager_peak_B=measured.resident_B + max(peaks["eager"]),
        captured_peak_B=measured.resident_B + max(peaks["captured"]),
        op_sum_ms=sum(op.runtime_ms for op in measured.ops),
        op_peak_B=measured.peak_B,
        plain_ms=measured.step_ms,
    )
