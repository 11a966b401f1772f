"""Budgets that cannot be kept: proofs by a single op, and the least peak that short work reaches instead."""

from lowtide.planning.optimal.exact import is_tiny, solve_exactly
from lowtide.planning.optimal.gather import impossible_op
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.repair import repair
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.walks import walked_within
from lowtide.planning.policies import BudgetInfeasible


def refuse_hopeless(best: Incumbent) -> None:
    """One op that alone needs more than the budget, or whose inputs cannot all be at hand within it."""
    o = hopeless_op(best.view, best.budget)
    if o is None:
        o = impossible_op(best.view, best.budget, ops=SETTINGS.traced_ops, sets=SETTINGS.traced_sets)
    if o is None:
        return
    problem = best.view.problem
    storages = {*problem.reads[o], *problem.writes[o]}
    blockers = sorted(((s, problem.sizes[s]) for s in storages), key=lambda entry: (-entry[1], entry[0]))
    lower_floor(best)
    workspace = (problem.ops[o].name, problem.workspaces[o])
    raise BudgetInfeasible(problem, best.budget, floor=best.floor, proven=True, blockers=blockers, workspace=workspace)


def hopeless_op(view: ProgramView, budget: int) -> int | None:
    """An op of the program that alone needs more than the budget."""
    needs = [(int(view.least[o]), o) for o in view.problem.program]
    worst, o = max(needs, key=lambda entry: (entry[0], -entry[1]))
    return o if worst > budget else None


def lower_floor(best: Incumbent) -> None:
    """Halve the way between what single ops need and the least peak seen, keeping every order that has less."""
    view, problem = best.view, best.view.problem
    low = max(best.budget + 1, *(int(view.least[o]) for o in problem.program))
    for step in range(SETTINGS.floor_steps):
        if low >= best.floor or best.left() < SETTINGS.floor_left * best.whole:
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
    return order if order is not None else walked_within(best, budget)
