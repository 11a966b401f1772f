"""Running policies on problems under budgets, for the benchmark's table and its scaling curve."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lowtide.planning.policies import BudgetInfeasible, Progress, policy
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
    for label, budget in asked.budgets_of(problem):
        cases = []
        for name in asked.policies:
            progress(f"{problem.name}, {label}, {name}")
            cases.append(_run(problem, label, budget, name, asked))
        known = [case.bound for case in cases if case.bound is not None]
        proven = any(case.infeasible for case in cases)
        for case in cases:
            yield replace(case, bound=max(known, default=None), infeasible=proven)


def _run(problem: Problem, label: str, budget: int, name: str, asked: Asked) -> Case:
    start = time.perf_counter()
    overhead: float | None = None
    bound: float | None = None
    proven = False
    try:
        plan = policy(name).plan(problem, budget, time_limit=asked.time_limit, seed=asked.seed)
        overhead = plan.overhead
        bound = plan.bound if name == "optimal" else None
    except BudgetInfeasible as infeasible:
        proven = infeasible.proven
    seconds = time.perf_counter() - start
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
