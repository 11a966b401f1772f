"""Policies turn a problem and a byte budget into a plan: one module each, found by name, loaded when asked for."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from lowtide.errors import InputError, LowtideError, shown
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import Schedule
from lowtide.planning.simulate import simulate
from lowtide.units import format_bytes

Progress = Callable[[str], None]
"""Told in a few words what is being done, whenever that changes."""

POLICIES = {
    "optimal": "lowtide.planning.optimal",
    "mutwo": "lowtide.planning.policies.mutwo",
    "chen": "lowtide.planning.policies.chen",
    "keep_all": "lowtide.planning.policies.keep_all",
}


def quiet(message: str) -> None:
    """A Progress that says nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule within the budget, with what the simulator says of it."""

    schedule: Schedule
    policy: str
    peak: int
    time: float
    overhead: float
    bound: float
    """No schedule within the budget has less overhead; 0 where the policy certifies nothing."""
    seconds: float
    """What planning took."""
    note: str = ""

    @property
    def gap(self) -> float:
        """How much less overhead the best schedule could have, as a share of the program's time."""
        return max(0.0, self.overhead - self.bound)


class Policy(Protocol):
    """What every policy's module offers."""

    def plan(
        self, problem: Problem, budget: int, *, time_limit: float = 60.0, seed: int = 0, progress: Progress = quiet
    ) -> Plan:
        """A plan within `budget`, else BudgetInfeasible; the same for the same limit and seed."""
        ...


class FrontierPolicy(Protocol):
    """What the module of `optimal` offers beside `plan`."""

    def frontier(
        self,
        problem: Problem,
        *,
        points: int = 12,
        time_limit: float = 600.0,
        seed: int = 0,
        progress: Progress = quiet,
    ) -> Sequence[Plan]:
        """Plans from no budget down to the floor, peaks falling; a plan's bound holds for every peak up to its own."""
        ...


class BudgetInfeasible(LowtideError, ValueError):
    """No plan within the budget: proven impossible, or none was reached."""

    def __init__(
        self,
        problem: Problem,
        budget: int,
        *,
        floor: int,
        proven: bool,
        blockers: Sequence[tuple[int, int]],
        workspace: tuple[str, int] = ("", 0),
    ) -> None:
        self.budget = budget
        self.floor = floor
        """The least peak that was found."""
        self.proven = proven
        self.blockers = tuple(blockers)
        """(storage, bytes) that stand in the way, the largest first."""
        self.workspace = workspace
        """Name of the op at which they do, and its workspace."""
        what = "no schedule can stay within" if proven else "no schedule was found (nor proven impossible) within"
        names = [(size, problem.storage_label(s)) for s, size in self.blockers[:3]]
        way = in_the_way([*names, (workspace[1], f"the workspace of {workspace[0]}")])
        super().__init__(f"{what} {_exactly(budget)}; the least peak found is {_exactly(floor)}{way}")

    def __reduce__(self) -> tuple[Any, ...]:
        """It comes out of the planner's process as it is, and without the problem."""
        return _restored, (self.args, vars(self))


def _restored(args: tuple[Any, ...], held: dict[str, Any]) -> BudgetInfeasible:
    error = BudgetInfeasible.__new__(BudgetInfeasible, *args)
    vars(error).update(held)
    return error


def in_the_way(things: Sequence[tuple[int, str]]) -> str:
    """The three largest of them, by size and name, as the end of a sentence."""
    largest = sorted((thing for thing in things if thing[0]), key=lambda thing: -thing[0])[:3]
    named = ", ".join(f"{name} {format_bytes(size)}" for size, name in largest)
    return f"; the largest in the way: {named}" if named else ""


def over_budget(problem: Problem, order: Sequence[int], budget: int, *, proven: bool = False) -> BudgetInfeasible:
    """The error that says why `order`, which has the least peak found, takes more than `budget`."""
    timeline = simulate(problem, order)
    op = problem.ops[order[timeline.peak_step]]
    found = (op.name, timeline.workspace)
    return BudgetInfeasible(
        problem, budget, floor=timeline.peak, proven=proven, blockers=timeline.alive, workspace=found
    )


def policy(name: str) -> Policy:
    """The policy called `name`."""
    if not isinstance(name, str) or name not in POLICIES:
        raise InputError(f"there is no policy {shown(name)}; there are {', '.join(POLICIES)}")
    return cast(Policy, importlib.import_module(POLICIES[name]))


def frontier_policy() -> FrontierPolicy:
    """The policy that can draw a frontier."""
    return cast(FrontierPolicy, importlib.import_module(POLICIES["optimal"]))


def judged(
    problem: Problem,
    order: Sequence[int],
    budget: int,
    *,
    policy: str,
    seconds: float,
    bound: float = 0.0,
    note: str = "",
) -> Plan:
    """The plan that runs `order`, with the simulator's figures; BudgetInfeasible (not proven) where it is over."""
    timeline = simulate(problem, order)
    if timeline.peak > budget:
        raise over_budget(problem, order, budget)
    schedule = Schedule(tuple(order))
    return Plan(schedule, policy, timeline.peak, timeline.time, timeline.overhead, bound, seconds, note)


def _exactly(size: int) -> str:
    return f"{format_bytes(size)} ({size} bytes)" if size >= 1024 else f"{size} bytes"
