"""Every kind of step on ranks of its own; those of a group take turns, and each round begins with another."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from lowtide.device.shim import compiler
from lowtide.errors import InputError
from lowtide.experiments.parallel.rank import run_kind
from lowtide.experiments.parallel.record import Kind, KindRow, Parallel, RankStep, switches
from lowtide.experiments.workload import Workload
from lowtide.parallel.launch import Launched

Say = Callable[[str], None]
SETTLE = 0.2
"""Seconds between turns, in which the threads of those who wait fall asleep."""
PEAK_STEPS = 2
"""Until the optimizer's state is there."""


def measure_parallel(
    asked: Workload,
    ways: Sequence[str],
    below: Sequence[float],
    *,
    world: int,
    warmup: int,
    rounds: int,
    say: Say,
    torch: str,
) -> Parallel:
    """Each way with all of its switches, and for each switch a plan whose budget is the peak that it has, in a group of
    their own with the control; then plans at the shares `below` of the least of these peaks."""
    if compiler() is None:
        raise InputError(
            "bench parallel counts all that a process holds, which only the allocator shim can: install g++"
        )
    rows: list[KindRow] = []
    model: dict[str, Any] = {}
    for way in ways:
        kinds = switches(way)
        peaks: dict[str, int] = {}
        for kind in kinds:
            say(f"the peak of {kind.name}")
            row, model = _alone(asked, kind, world)
            peaks[kind.name] = max(step.peak_B for step in row.steps[-1])
        control = kinds[0]
        groups = [
            [control, *([kind] if kind != control else []), Kind(way, True, False, peaks[kind.name], kind.name)]
            for kind in kinds
        ]
        least = min(peaks.values())
        plans = [Kind(way, True, False, int(share * least), f"{way}, {share:.0%} of the least") for share in below]
        for group in [*groups, *([[control, *plans]] if plans else [])]:
            number = rows[-1].group + 1 if rows else 0
            rows += _take_turns(asked, group, number, world, warmup + rounds, say)
    return Parallel(
        model=model["model"],
        parameters=model["parameters"],
        batch_size=asked.batch_size,
        optimizer=asked.optimizer,
        world=world,
        threads=max(1, len(os.sched_getaffinity(0)) // world),
        torch=torch,
        warmup=warmup,
        rows=tuple(rows),
    )


class _Ranks:
    """The processes of one kind."""

    def __init__(self, asked: Workload, kind: Kind, world: int) -> None:
        self.kind = kind
        self._launched = Launched(world, run_kind, asked, kind)
        self.steps: list[tuple[RankStep, ...]] = []

    def start(self, stack: ExitStack) -> "_Ranks":
        """Ready for the first step, or failed."""
        stack.enter_context(self._launched)
        answers: list[dict[str, Any]] = self._launched.answers()
        self.ready = answers[0]
        self.failure: str | None = self.ready["failure"]
        return self

    def step(self) -> None:
        """Take one."""
        if self.failure is None:
            self._launched.tell("step")
            self.steps.append(tuple(self._launched.answers()))

    def row(self, group: int) -> KindRow:
        """All that was measured."""
        if self.failure is not None:
            return KindRow(self.kind, group, self.failure, 0.0, None, None, None, ())
        told = {name: self.ready[name] for name in ("startup_s", "predicted", "bound", "gathered_again")}
        return KindRow(self.kind, group, None, **told, steps=tuple(self.steps))


def _alone(asked: Workload, kind: Kind, world: int) -> tuple[KindRow, dict[str, Any]]:
    with ExitStack() as stack:
        ranks = _Ranks(asked, kind, world).start(stack)
        for _ in range(PEAK_STEPS):
            ranks.step()
        return ranks.row(0), ranks.ready


def _take_turns(asked: Workload, kinds: Sequence[Kind], group: int, world: int, rounds: int, say: Say) -> list[KindRow]:
    with ExitStack() as stack:
        members = []
        for kind in kinds:
            say(f"start {kind.name}")
            members.append(_Ranks(asked, kind, world).start(stack))
        for number in range(rounds):
            first = number % len(members)
            for member in members[first:] + members[:first]:
                say(f"group {group}, round {number + 1} of {rounds}: {member.kind.name}")
                time.sleep(SETTLE)
                member.step()
        return [member.row(group) for member in members]
