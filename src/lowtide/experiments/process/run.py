"""Every kind of step in a process of its own; they take turns, step by step, and each round begins with another."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from lowtide.experiments.answering import Answering
from lowtide.experiments.process.record import (
    CAPTURED,
    EAGER,
    PLAIN,
    WARM,
    KindRow,
    KindSettings,
    ProcessMemory,
    Promise,
    StepFigures,
)
from lowtide.files import owned_prefix

Say = Callable[[str], None]
SETTLE = 0.2
"""Seconds between turns, in which the threads of the one that waits fall asleep."""


class Child:
    """The process of one kind."""

    def __init__(self, wanted: KindSettings, folder: Path) -> None:
        self.wanted = wanted
        self._folder = folder
        self.steps: list[StepFigures] = []

    def __enter__(self) -> "Child":
        """Started, and ready for its first step; `failure` says why it never will be."""
        settings = self._folder / f"{self.wanted.kind}.json"
        self.wanted.save(settings)
        self._process = Answering("lowtide.experiments.process.child", settings, self.wanted.kind)
        self._ready = self._process.answer()
        self.failure: str | None = self._ready.get("failure")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Gone, whatever happened."""
        self._process.end()

    def step(self) -> None:
        """Take one."""
        if self.failure is None:
            self.steps.append(StepFigures(**self._process.ask("step")))

    def end(self, group: int = 0) -> KindRow:
        """All that was measured, as a row of that group."""
        wanted = self.wanted
        if self.failure is not None:
            return KindRow(wanted.kind, wanted.budget, self.failure, 0, 0, 0, 0.0, None, None, None, (), group)
        promise = self._ready.pop("promise")
        return KindRow(
            kind=wanted.kind,
            budget_B=wanted.budget,
            failure=None,
            **self._ready,
            **self._process.ask("end"),
            promise=None if promise is None else Promise(**promise),
            steps=tuple(self.steps),
            group=group,
        )


def measure_process(
    base: KindSettings,
    left: Sequence[float],
    peers: Sequence[str] = (),
    variants: Sequence[str] = (PLAIN,),
    *,
    warmup: int,
    rounds: int,
    at_once: int,
    say: Say,
    torch: str,
) -> ProcessMemory:
    """Eager steps in both kinds of memory, captured ones, those of `peers`, and plans of all `variants` that leave the
    shares in `left` of the bytes above the residents; `base` says of what. `at_once` processes live at a time."""
    prefix = owned_prefix(Path(tempfile.gettempdir()), "lowtide-process-")
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        kinds = [replace(base, kind=kind) for kind in (EAGER, CAPTURED, *peers)]
        for budget, share in zip(_budgets(base, left, Path(name), say), left, strict=True):
            for variant in variants:
                called = f"{share:.0%} left" + (f", {variant}" if variant != PLAIN else "")
                kinds.append(replace(base, kind=called, budget=budget, variant=variant))
        rows: list[KindRow] = []
        size = at_once - 1  # beside warm eager
        for group, start in enumerate(range(0, len(kinds), size)):
            members = [replace(base, kind=WARM), *kinds[start : start + size]]
            rows += _take_turns(members, group, Path(name), warmup + rounds, say)
    return ProcessMemory(
        model=base.model,
        batch_size=base.batch_size,
        optimizer=base.optimizer,
        threads=len(os.sched_getaffinity(0)),
        torch=torch,
        warmup=warmup,
        rows=tuple(rows),
    )


def _take_turns(kinds: Sequence[KindSettings], group: int, folder: Path, rounds: int, say: Say) -> list[KindRow]:
    with ExitStack() as stack:
        children = []
        for wanted in kinds:
            say(f"start {wanted.kind}")
            children.append(stack.enter_context(Child(wanted, folder)))
        for number in range(rounds):
            first = number % len(children)
            for child in children[first:] + children[:first]:
                say(f"round {number + 1} of {rounds}, {child.wanted.kind}")
                time.sleep(SETTLE)
                child.step()
        return [child.end(group) for child in children]


def _budgets(base: KindSettings, left: Sequence[float], folder: Path, say: Say) -> list[int]:
    """By what two eager steps take, in a process that is gone afterwards."""
    say("budgets")
    with Child(replace(base, kind=EAGER), folder) as child:
        for _ in range(2):
            child.step()
        row = child.end()
    peak = row.steps[-1].peak_B
    assert peak is not None, "the allocator counts the first two steps"
    return [row.resident_B + int(share * (peak - row.resident_B)) for share in left]
