"""How long it takes until a planned step is ready, and what other shapes cost, beside eager steps of a copy."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.experiments.eager_training import EagerCopy
from lowtide.experiments.startup.record import Shape, Stage, Startup
from lowtide.graph.batch_form import BatchForm
from lowtide.models.training import Training
from lowtide.training.train_step import TrainStep, train_step

ROUNDS = 4
"""Steps with each shape."""


def measure_startup(
    training: Training,
    optimizer: Optimizer,
    budget: str,
    policy: str,
    measure: str,
    steps: int,
    shapes: int,
    say: Callable[[str], None],
) -> Startup:
    """Train until the step is planned, take eager steps, look at the guards, then train with other shapes."""
    eager = EagerCopy(training.model, optimizer, training.loss)
    say("capture, profile and plan")
    began = perf_counter()
    step = train_step(
        training.model,
        optimizer,
        training.batch,
        training.loss,
        budget=budget,
        policy=policy,
        measure=measure,
        progress=False,
    )
    step(training.batch)
    first, meanwhile = perf_counter() - began, 1
    while not step.is_planned:
        say(f"step {meanwhile + 1}, measured")
        step(training.batch)
        meanwhile += 1
    whole = perf_counter() - began
    stages = tuple(Stage(name, seconds) for name, seconds in step.seconds.items())
    say("eager steps")
    times = [eager.step(training.batch)[1] / 1000 for _ in range(1 + steps)][1:]
    say("guards and a check")
    guards = [_seconds(lambda: step.is_ready_for(training.batch)) for _ in range(20)]
    check = step.checks.seconds / step.checks.checks
    return Startup(
        model=training.name,
        batch=BatchForm.of(training.batch).lines,
        budget=budget,
        measure=measure,
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        stages=stages,
        whole_s=whole - meanwhile * median(times),
        first_loss_s=first,
        meanwhile=meanwhile,
        eager_s=tuple(times),
        guards_s=tuple(guards),
        sentinel_s=check,
        shapes=_other_shapes(step, training.batch, shapes, say) if shapes else (),
    )


def _other_shapes(step: TrainStep, batch: Any, count: int, say: Callable[[str], None]) -> tuple[Shape, ...]:
    """`count` smaller shapes take turns, ROUNDS times."""
    batches = [smaller(batch, number) for number in range(1, count + 1)]
    times: list[list[float]] = [[] for _ in batches]
    measured = [False] * count
    for turn in range(ROUNDS):
        for number, other in enumerate(batches):
            say(f"shape {number + 1} of {count}, step {turn + 1} of {ROUNDS}")
            times[number].append(_seconds(lambda other=other: step(other)))  # type: ignore[misc]
            measured[number] = step.profile is not None
    forms = ("; ".join(BatchForm.of(other).lines) for other in batches)
    return tuple(
        Shape(form, first, tuple(later), own) for form, (first, *later), own in zip(forms, times, measured, strict=True)
    )


def smaller(batch: Any, number: int) -> Any:
    """The batch cut, the more the larger the number: sequences where it has any, samples otherwise."""
    tensors = [x for x in pytree.tree_leaves(batch) if isinstance(x, Tensor)]
    sequences = [x.shape[1] for x in tensors if x.dim() == 2 and not x.is_floating_point()]
    dim, size = (1, max(sequences)) if sequences else (0, tensors[0].shape[0])
    kept = max(1, size - number * max(1, size // 20))

    def cut(x: Any) -> Any:
        wanted = isinstance(x, Tensor) and x.dim() > dim and x.shape[dim] == size
        return x.narrow(dim, 0, kept).contiguous() if wanted else x

    return pytree.tree_map(cut, batch)


def _seconds(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began
