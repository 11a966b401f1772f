"""Peak against time where values can be swapped: a plan at each of some budgets."""

from lowtide.planning.optimal import frontier as without_lanes_frontier
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.swapping.arrange import without_lanes
from lowtide.planning.optimal.swapping.joint import plan
from lowtide.planning.policies import BudgetInfeasible, Plan, Progress, quiet
from lowtide.planning.problem import Problem


def frontier(
    problem: Problem, *, points: int = 12, time_limit: float = 300.0, seed: int = 0, progress: Progress = quiet
) -> tuple[Plan, ...]:
    """Plans from the largest peak to the least, none beaten by another; with lanes each is planned by itself."""
    if not problem.lanes:
        return without_lanes_frontier.frontier(
            problem, points=points, time_limit=time_limit, seed=seed, progress=progress
        )
    view = ProgramView(without_lanes(problem).problem)
    top, low = int(view.live.max()), max(int(view.least[o]) for o in view.problem.program)
    found: list[Plan] = []
    for point in range(points):
        budget = top - (top - low) * point // max(1, points - 1)
        progress(f"budget {budget}")
        try:
            found.append(plan(problem, budget, time_limit=time_limit / points, seed=seed))
        except BudgetInfeasible:
            break
    return tuple(
        one
        for i, one in enumerate(found)
        if not any(other.time <= one.time and other.peak <= one.peak for other in found[i + 1 :])
    )
