"""Every kind of step in a process of its own; they take turns, step by step, and each round begins with another."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from lowtide.experiments.answering import Answering
from lowtide.experiments.compiled.record import EAGER, Compared, KindRow, KindSettings, StepFigures
from lowtide.files import owned_prefix

Say = Callable[[str], None]
SETTLE = 0.2
"""Seconds between turns, in which the threads of the one that waits fall asleep."""
SAME = 0.005
"""Peaks of torch's that differ by less are one budget for lowtide."""
KNOWN = 2
"""Steps after which a peak is known: the first makes the optimizer's state."""


class _Child:
    """The process of one kind."""

    def __init__(self, wanted: KindSettings, folder: Path, stack: ExitStack) -> None:
        self.wanted = wanted
        self.steps: list[StepFigures] = []
        self.failure: str | None = None
        settings = folder / f"{wanted.kind}.json"
        wanted.save(settings)
        self._process = Answering("lowtide.experiments.compiled.child", settings, wanted.kind)
        stack.callback(self._process.end)

    def step(self) -> None:
        if self.failure is None:
            found = self._process.ask("step")
            self.failure = found.get("failure")
            if self.failure is None:
                self.steps.append(StepFigures(**found))

    def resident(self) -> int:
        return int(self._process.ask("resident")["resident_B"])

    def end(self, gradients: Path) -> KindRow:
        found = {} if self.failure is not None else self._process.ask(f"check {gradients}")
        failure, wanted = self.failure or found.get("failure"), self.wanted
        steps = () if failure else tuple(self.steps)
        return KindRow(wanted.kind, wanted.share, wanted.budget, failure, steps, found.get("off"))


def measure_compiled(
    base: KindSettings,
    shares: Sequence[float],
    below: Sequence[float],
    *,
    warmup: int,
    rounds: int,
    say: Say,
    torch: str,
) -> Compared:
    """Eager steps, torch's with the `shares`, lowtide's with the bytes that each of these took, and with the shares
    `below` of what the least of them took above the residents; `base` says of what."""
    prefix = owned_prefix(Path(tempfile.gettempdir()), "lowtide-compiled-")
    with tempfile.TemporaryDirectory(prefix=prefix) as name, ExitStack() as stack:
        folder = Path(name)

        def start(wanted: KindSettings) -> _Child:
            say(f"start {wanted.kind}")
            return _Child(wanted, folder, stack)

        eager = start(replace(base, kind=EAGER))
        theirs = [start(replace(base, kind=f"torch {share:g}", share=share)) for share in shares]
        for child in (eager, *theirs):
            for _ in range(KNOWN):
                say(f"peak of {child.wanted.kind}")
                child.step()
        resident = eager.resident()
        budgets = budgets_of([child.steps[-1].peak_B for child in theirs], below, resident)
        ours = [start(replace(base, kind=f"lowtide {b / 2**20:.0f} MiB", budget=b)) for b in budgets]
        for child in ours:
            for _ in range(KNOWN):
                say(f"plan {child.wanted.kind}")
                child.step()
        children = [eager, *theirs, *ours]
        for number in range(KNOWN, warmup + rounds):
            first = number % len(children)
            for child in children[first:] + children[:first]:
                say(f"step {number + 1} of {warmup + rounds}, {child.wanted.kind}")
                time.sleep(SETTLE)
                child.step()
        say("compare gradients")
        gradients = folder / "gradients"
        rows = {child.wanted.kind: child.end(gradients) for child in (*theirs, eager, *ours)}
    return Compared(
        model=base.model,
        batch_size=base.batch_size,
        dropout=base.dropout,
        optimizer=base.optimizer,
        executor=base.executor,
        threads=len(os.sched_getaffinity(0)),
        torch=torch,
        warmup=warmup,
        resident_B=resident,
        rows=tuple(rows[child.wanted.kind] for child in children),
    )


def budgets_of(peaks: Sequence[int], below: Sequence[float], resident: int) -> list[int]:
    """For lowtide, from the largest on: each peak of torch's once, and the shares `below` of the least above the
    residents."""
    found: list[int] = []
    for peak in sorted(peaks, reverse=True):
        if found and peak > (1 - SAME) * found[-1]:
            found[-1] = peak
        else:
            found.append(peak)
    least = found[-1] - resident
    return found + [resident + int(share * least) for share in sorted(below, reverse=True)]
