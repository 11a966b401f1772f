"""The steps of `lowtide animate saved`: eager, then planned, each alone in the process while it is sampled."""

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.optim import Optimizer

import lowtide
from lowtide.cli.eager_copy import EagerCopy
from lowtide.device.clock import clock_for
from lowtide.device.limit import usual_device
from lowtide.device.meter import meter_for
from lowtide.device.sampler import Sampler
from lowtide.graph.update import describe
from lowtide.models.training import Training
from lowtide.profiling.runs import no_collection
from lowtide.records.memory_samples import MemorySamples, SampledStep
from lowtide.training.planned import batch_lines

_WARM = 2
"""Steps before the sampled one: the first makes the optimizer's state."""
_EVERY_MS = 1.0

Fresh = Callable[[], tuple[Training, Optimizer]]


def sampled_steps(fresh: Fresh, budget: str, policy: str, say: Callable[[str], None]) -> MemorySamples:
    """Sample one eager and one planned step of what `fresh` makes anew for each."""
    sampler = Sampler(usual_device(), _EVERY_MS)
    say("eager steps")
    before = _eager(fresh, sampler)
    gc.collect()
    say("capture, measure and plan")
    training, optimizer = fresh()
    step = lowtide.train_step(
        training.model, optimizer, training.batch, training.loss, budget=budget, policy=policy, progress=False
    )
    assert step.plan is not None
    say("planned steps")
    clock = clock_for(step.graph.device)

    def planned(batch: Any) -> tuple[float, int | None]:
        clock.start()
        step(batch)
        return clock.stop(), step.measured_peak

    after = _sampled(planned, training.batch, sampler)
    return MemorySamples(
        model=training.name,
        batch=batch_lines(step.graph.form),
        optimizer=describe(optimizer),
        device=str(step.graph.device),
        torch=str(torch.__version__),
        memory_source=meter_for(step.graph.device).name,
        every_ms=sampler.every_ms,
        budget_B=step.plan.budget,
        before=before,
        after=after,
    )


def _eager(fresh: Fresh, sampler: Sampler) -> SampledStep:
    training, optimizer = fresh()
    batch = training.batch
    eager = EagerCopy(training.model, optimizer, training.loss)
    del training, optimizer  # only the copy is there while it is sampled

    def step(batch: Any) -> tuple[float, int | None]:
        _, ms, peak = eager.step(batch)
        return ms, peak

    return _sampled(step, batch, sampler)


def _sampled(step: Callable[[Any], tuple[float, int | None]], batch: Any, sampler: Sampler) -> SampledStep:
    for _ in range(_WARM):
        step(batch)
    with no_collection(), sampler:
        ms, peak = step(batch)
    assert peak is not None
    times, sizes = zip(*_changes(sampler.samples), strict=True)
    return SampledStep(tuple(round(time, 3) for time in times), sizes, peak, ms)


def _changes(samples: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The samples that differ from the one before them, and the last."""
    kept = [samples[0], *(now for before, now in pairwise(samples[:-1]) if now[1] != before[1])]
    return [*kept, samples[-1]]
