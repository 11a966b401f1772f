"""The least peak that can be reached in short time, for the answer to a budget that cannot be kept."""

from lowtide.planning.optimal.exact import is_tiny, solve_exactly
from lowtide.planning.optimal.greedy import Greedy
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.settings import SETTINGS


def lower_floor(best: Incumbent) -> None:
    """Halve the way between what single ops need and the least peak seen, keeping every order that has less."""
    view, problem = best.view, best.view.problem
    low = max(best.budget + 1, *(int(view.least[o]) for o in problem.program))
    for step in range(SETTINGS.floor_steps):
        if low >= best.floor or best.left() < 0.1 * best.whole:
            return
        target = low if step == 0 else (low + best.floor) // 2
        order = _within(best, target)
        if order is None:
            low = target + 1
        else:
            best.over(order)


def _within(best: Incumbent, budget: int) -> list[int] | None:
    problem = best.view.problem
    if is_tiny(problem):
        exact = solve_exactly(problem, budget)
        if exact.finished:
            return None if exact.order is None else list(exact.order)
    order = repair(best.view, best.floor_order, budget)
    return order if order is not None else Greedy(best.view, budget).search()
