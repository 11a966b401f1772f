"""Running policies on problems under budgets, for the benchmark's table and its scaling curve."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from lowtide.errors import InputError, shown
from lowtide.planning.policies import BudgetInfeasible, Plan, Progress, policy
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import simulate
from lowtide.planning.synthetic import OPS_PER_BLOCK, repeated_blocks
from lowtide.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Case:
    """One policy on one problem under one budget."""

    problem: str
    ops: int
    budget: int
    label: str
    """The budget as it was asked for."""
    policy: str
    overhead: float | None
    """None where no plan was reached."""
    bound: float | None
    """The best certified bound at this budget; None where none was computed."""
    infeasible: bool
    """Proven: no schedule fits."""
    seconds: float
    """On the clock; of the processor where counted work alone cuts the search."""

    @property
    def gap(self) -> float | None:
        """How far the overhead is from the bound."""
        return None if self.overhead is None or self.bound is None else max(0.0, self.overhead - self.bound)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run on every problem."""

    budgets: tuple[str, ...]
    above_residents: bool
    """Shares are of the bytes above the residents, which stay whatever the plan."""
    policies: tuple[str, ...]
    time_limit: float
    seed: int
    without: tuple[str, ...] = ()
    """Stages of `optimal` to leave out, each in turn; `a+b` leaves out both. Then no other policy runs."""
    counted: bool = False
    """Only `optimal`, cut by counted work alone: the same figures on a busy machine."""

    def budgets_of(self, problem: Problem) -> list[tuple[str, int]]:
        """The budgets as they were written, with their bytes."""
        peak, resident = simulate(problem, problem.program).peak, problem.resident_bytes
        found = []
        for text in self.budgets:
            if self.above_residents and text.strip().endswith("%"):
                above = parse_bytes(text, whole=peak - resident, of="the bytes above the residents")
                found.append((f"{text.strip()} above residents", resident + above))
            else:
                found.append((text.strip(), parse_bytes(text, whole=peak, of="the program order's peak")))
        return found


def run_cases(problem: Problem, asked: Asked, progress: Progress) -> Iterator[Case]:
    """Every policy under every budget; a bound that one of them certifies holds for all."""
    if asked.without or asked.counted:
        yield from _counted(problem, asked, progress)
        return
    for label, budget in asked.budgets_of(problem):
        cases = []
        for name in asked.policies:
            progress(f"{problem.name}, {label}, {name}")
            plan = partial(policy(name).plan, time_limit=asked.time_limit, seed=asked.seed)
            cases.append(_run(problem, label, budget, name, plan))
        known = [case.bound for case in cases if case.bound is not None]
        proven = any(case.infeasible for case in cases)
        for case in cases:
            yield replace(case, bound=max(known, default=None), infeasible=proven)


def _counted(problem: Problem, asked: Asked, progress: Progress) -> Iterator[Case]:
    """The search as it is and without each of some stages, cut by counted work alone: a busy machine will do."""
    from lowtide.planning.optimal.search import plan as search

    if problem.lanes:
        raise InputError(f"{problem.name} has lanes: counted work alone cuts the search only where there are none")
    for label, budget in asked.budgets_of(problem):
        for left_out in ("", *asked.without):
            name = f"optimal without {left_out}" if left_out else "optimal"
            progress(f"{problem.name}, {label}, {name}")
            stages = stages_named(left_out)
            plan = partial(search, time_limit=asked.time_limit, seed=asked.seed, without=stages, clock=False)
            yield _run(problem, label, budget, name, plan, clock=time.process_time)


def stages_named(text: str) -> tuple[str, ...]:
    """Stages of the search from their names, joined by +."""
    from lowtide.planning.optimal.search import STAGES  # the search is loaded only where it is used

    found = tuple(name.strip() for name in text.split("+")) if text else ()
    for name in found:
        if name not in STAGES:
            raise InputError(f"there is no stage {shown(name)} of the search; there are {', '.join(STAGES)}")
    return found


def _run(
    problem: Problem,
    label: str,
    budget: int,
    name: str,
    plan: Callable[[Problem, int], Plan],
    clock: Callable[[], float] = time.perf_counter,
) -> Case:
    start = clock()
    overhead: float | None = None
    bound: float | None = None
    proven = False
    try:
        found = plan(problem, budget)
        overhead = found.overhead
        bound = found.bound if name.startswith("optimal") else None
    except BudgetInfeasible as infeasible:
        proven = infeasible.proven
    seconds = clock() - start
    return Case(problem.name, len(problem.ops), budget, label, name, overhead, bound, proven, seconds)


def scaling_problems(largest: int) -> Iterator[Problem]:
    """Repeated blocks of about 500, 1000, 2000, 5000 ... ops, up to `largest`."""
    size = 500
    steps = (2.0, 2.0, 2.5)
    turn = 0
    while size <= largest:
        yield repeated_blocks(max(1, size // OPS_PER_BLOCK))
        size = int(size * steps[turn % 3])
        turn += 1
