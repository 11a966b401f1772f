"""Peak against time, from the program order down to the least peak that was reached; points help each other."""

from collections.abc import Iterator

from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.search import as_plan, search
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.swapping.arrange import without_lanes
from lowtide.planning.optimal.swapping.joint import plan as plan_with_lanes
from lowtide.planning.optimal.work import Allowance, working_within
from lowtide.planning.policies import BudgetInfeasible, Plan, Progress, quiet
from lowtide.planning.problem import Problem


def frontier(
    problem: Problem, *, points: int = 12, time_limit: float = 300.0, seed: int = 0, progress: Progress = quiet
) -> tuple[Plan, ...]:
    """Plans from the largest peak to the least, each with the bound at its budget, none beaten by another.

    A point begins with the schedule of the point above it, made to fit; its own schedule is then tried at the points
    above. A bound holds for every smaller budget too.
    """
    if problem.lanes:
        return _each_by_itself(problem, points, time_limit, seed, progress)
    view = ProgramView(problem)
    share = time_limit / (points + SETTINGS.halvings)
    found: list[Incumbent] = []
    seconds: list[float] = []
    notes: list[str] = []
    for budget in _budgets(view, points, found):
        best = Incumbent(view, budget, seed, progress)
        progress(f"budget {budget}")
        with working_within(Allowance.of(share)) as given:
            if found:
                best.raise_bound(found[-1].bound)
                best.offer(found[-1].order or ())
            try:
                notes.append(search(best))
            except BudgetInfeasible:
                continue
        if best.order is None:
            notes.pop()
        else:
            found.append(best)
            seconds.append(given.meter.spent())
    for lower, upper in zip(found[:0:-1], found[-2::-1], strict=True):
        upper.offer(lower.order or ())
    return _unbeaten([as_plan(*point) for point in zip(found, seconds, notes, strict=True)])


def _unbeaten(plans: list[Plan]) -> tuple[Plan, ...]:
    """Those that no plan of a smaller budget beats in both time and peak."""
    return tuple(
        plan
        for i, plan in enumerate(plans)
        if not any(q.time <= plan.time and q.peak <= plan.peak for q in plans[i + 1 :])
    )


def _each_by_itself(
    problem: Problem, points: int, time_limit: float, seed: int, progress: Progress
) -> tuple[Plan, ...]:
    """With lanes, where schedules of one budget say little about another's."""
    view = ProgramView(without_lanes(problem).problem)
    top, low = int(view.live.max()), max(int(view.least[o]) for o in view.problem.program)
    found: list[Plan] = []
    for point in range(points):
        budget = top - (top - low) * point // max(1, points - 1)
        progress(f"budget {budget}")
        try:
            found.append(plan_with_lanes(problem, budget, time_limit=time_limit / points, seed=seed))
        except BudgetInfeasible:
            break
    return _unbeaten(found)


def _budgets(view: ProgramView, points: int, found: list[Incumbent]) -> Iterator[int]:
    """Even steps from the program's peak to what single ops need; then halfway between kept and not kept."""
    top, low = int(view.live.max()), max(int(view.least[o]) for o in view.problem.program)
    missed = low - 1
    for i in range(points):
        budget = top - (top - low) * i // max(1, points - 1)
        before = len(found)
        yield budget
        if len(found) == before:
            missed = budget
            break
    for _ in range(SETTINGS.halvings):
        kept = found[-1].budget
        if kept - missed < 2:
            return
        budget, before = (kept + missed) // 2, len(found)
        yield budget
        if len(found) == before:
            missed = budget
