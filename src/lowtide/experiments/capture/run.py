"""Measures captured steps against warm eager ones: the same model, step by step in turn, in one run."""

from collections.abc import Callable

import torch

from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.device.process import warm_memory
from lowtide.experiments.capture.record import Comparison
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.profile import profile
from lowtide.profiling.runs import no_collection, run_plain
from lowtide.profiling.untouched import untouched

Progress = Callable[[int, int, str], None]


def compare_with_eager(
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
    optimizer = graph.optimizer
    assert optimizer is not None

    def run_eager() -> tuple[float, int]:
        with no_collection():
            meter.start()
            clock.start()
            eager_loss().backward()
            optimizer.step()
            return clock.stop(), meter.stop().peak

    def run_captured() -> tuple[float, int]:
        run = run_plain(graph, batch, clock, meter)
        return run.time, run.peak

    kinds = {"eager": run_eager, "captured": run_captured}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    peaks: dict[str, list[int]] = {kind: [] for kind in kinds}
    with warm_memory(), untouched(graph, graph.form.own_tensors(graph.example)):
        for step in range(warmup + steps):
            for kind in list(kinds)[:: -1 if step % 2 else 1]:  # neither is always the first
                optimizer.zero_grad(set_to_none=True)
                time, peak = kinds[kind]()
                if step >= warmup:
                    times[kind].append(time)
                    peaks[kind].append(peak)
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
        eager_ms=tuple(times["eager"]),
        captured_ms=tuple(times["captured"]),
        eager_peak_B=measured.resident_B + max(peaks["eager"]),
        captured_peak_B=measured.resident_B + max(peaks["captured"]),
        op_sum_ms=sum(op.runtime_ms for op in measured.ops),
        op_peak_B=measured.peak_B,
        plain_ms=measured.step_ms,
    )
