"""The steps of `lowtide animate saved`: eager, then planned, sampled while they run."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.optim import Optimizer

import lowtide
from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.device.sampler import Sampler
from lowtide.experiments.eager_training import EagerCopy
from lowtide.experiments.saved_memory.record import MemorySamples, SampledStep
from lowtide.models.training import Training
from lowtide.optimizer.update import describe
from lowtide.profiling.runs import no_collection

_WARM = 2
"""Steps before the sampled one: the first makes the optimizer's state."""
_EVERY_MS = 1.0

Fresh = Callable[[], tuple[Training, Optimizer]]


@dataclass(frozen=True, slots=True)
class Planning:
    """How the step is planned."""

    budget: str
    policy: str
    time_limit: float | None


def sampled_steps(fresh: Fresh, planning: Planning, say: Callable[[str], None]) -> MemorySamples:
    """Sample one eager and one planned step of what `fresh` makes anew for each."""
    say("eager steps")
    before = _eager(fresh)
    gc.collect()  # the eager model goes before the planned one comes
    say("capture, measure and plan")
    training, optimizer = fresh()
    step = lowtide.train_step(
        training.model,
        optimizer,
        training.batch,
        training.loss,
        budget=planning.budget,
        policy=planning.policy,
        time_limit=planning.time_limit,
        progress=False,
        measure="before",
        sentinel=False,  # only the step itself is timed
    )
    assert step.plan is not None
    say("planned steps")
    clock = clock_for(step.graph.device)

    def planned(batch: Any) -> tuple[float, int | None]:
        clock.start()
        step(batch)
        return clock.stop(), step.measured_peak

    after = _sampled(planned, training.batch, step.graph.device)
    return MemorySamples(
        model=training.name,
        batch=step.graph.form.lines,
        optimizer=describe(optimizer),
        device=str(step.graph.device),
        torch=str(torch.__version__),
        memory_source=meter_for(step.graph.device).name,
        every_ms=_EVERY_MS,
        budget_B=step.plan.budget,
        before=before,
        after=after,
    )


def _eager(fresh: Fresh) -> SampledStep:
    training, optimizer = fresh()
    eager = EagerCopy(training.model, optimizer, training.loss)

    def step(batch: Any) -> tuple[float, int | None]:
        _, ms, peak = eager.step(batch)
        return ms, peak

    return _sampled(step, training.batch, next(training.model.parameters()).device)


def _sampled(step: Callable[[Any], tuple[float, int | None]], batch: Any, device: torch.device) -> SampledStep:
    sampler = Sampler(device, _EVERY_MS)
    warm = [step(batch)[1] for _ in range(_WARM)]
    with no_collection(), sampler:
        ms, last = step(batch)
    peak = max(peak for peak in (*warm, last) if peak is not None)  # not every step is measured on every device
    before = peak - sampler.taken.peak
    times, sizes = zip(*_changes(sampler.samples), strict=True)
    return SampledStep(tuple(round(time, 3) for time in times), tuple(before + size for size in sizes), peak, ms)


def _changes(samples: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """The samples that differ from the one before them, and the last."""
    kept = [samples[0], *(now for before, now in pairwise(samples[:-1]) if now[1] != before[1])]
    return [*kept, samples[-1]]
