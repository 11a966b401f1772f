"""The algorithm: refuse what is impossible, bound, build, improve, certify."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from lowtide.planning.optimal import build, walks
from lowtide.planning.optimal.certify import from_instants, from_stages, rank_instants, solve_instants
from lowtide.planning.optimal.cutting import bound_by_prices
from lowtide.planning.optimal.exact import solve_exactly
from lowtide.planning.optimal.incumbent import Impossible, Incumbent
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.refuse import lower_floor, refuse_hopeless
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import Allowance, allowance, working_within
from lowtide.planning.policies import Plan, Progress, judged, over_budget, quiet
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import peak_of

CUT = "cut off by the clock: another run may differ"


@dataclass(frozen=True)
class Stage:
    """A part of the search, and when it is worth its time."""

    name: str
    run: Callable[[Incumbent], None]
    worth: Callable[[Incumbent], bool] = lambda best: True


FIRST = (
    Stage("rank instants", rank_instants),
    Stage("repair", build.repaired_program, lambda best: best.is_medium),
    Stage("policies", build.from_policies),
    Stage("one instant", solve_instants),
    Stage("first walks", walks.towards_a_first_plan, lambda best: best.order is None),
    Stage("several instants", from_instants, lambda best: best.is_small or (best.near and best.is_medium)),
)
"""Bounds by single instants, and every cheap way to a first plan."""
BETTER = (
    Stage("few blocks", partial(build.from_blocks, most=SETTINGS.few_blocks)),
    Stage(
        "many blocks",
        partial(build.from_blocks, most=SETTINGS.many_blocks),
        lambda best: best.left() > SETTINGS.many_blocks_left * best.whole,
    ),
    Stage("spine", walks.along_the_spine, lambda best: best.is_chain and best.above(SETTINGS.apart)),
    Stage("walks anew", walks.walks_anew, lambda best: not best.is_chain and best.is_wide),
    Stage("stages", from_stages, lambda best: not best.is_chain and not best.far),
)
"""Plans of a build that fits the graph: chains of blocks, few for a good plan early, or walks over any graph."""
IMPROVE = (Stage("walks", walks.onward),)
"""Ruin and recreate from the best order."""
CERTIFY = (
    Stage("finer spine", walks.finer_spine, lambda best: best.above(SETTINGS.apart)),
    Stage("prices", bound_by_prices, lambda best: best.left() > SETTINGS.worth_solving),
)
"""Bounds that see more than one instant."""
STAGES = tuple(stage.name for stage in (*FIRST[1:], *BETTER, *IMPROVE, *CERTIFY))
"""What can be left out: all but the ranking, which the others stand on."""


def plan(
    problem: Problem,
    budget: int,
    *,
    time_limit: float = 60.0,
    seed: int = 0,
    progress: Progress = quiet,
    without: Collection[str] = (),
    clock: bool = True,
) -> Plan:
    """The fastest schedule found within `budget`, with a bound on any; BudgetInfeasible where there is none.

    `without` names stages to leave out, to see what they bring. Without the `clock` only counted work cuts.
    """
    with working_within(Allowance.of(time_limit, clock=clock)) as given:
        peak_of(problem, problem.program)  # refuses what cannot be simulated
        best = Incumbent(ProgramView(problem), budget, seed, progress, frozenset(without))
        note = search(best)
    return as_plan(best, given.meter.spent(), note)


def as_plan(best: Incumbent, seconds: float, note: str) -> Plan:
    """The best order as a plan; BudgetInfeasible where there is none."""
    problem, base = best.view.problem, best.view.problem.base_time
    if best.order is None:
        raise over_budget(problem, best.floor_order, best.budget)
    bound = min(best.bound, best.extra) / base if base else 0.0
    return judged(problem, best.order, best.budget, policy="optimal", seconds=seconds, bound=bound, note=note)


def search(best: Incumbent) -> str:
    """Fill `best`; how it ended, in a few words. BudgetInfeasible where that is proven."""
    if int(best.view.live.max()) <= best.budget:
        best.offer(best.view.problem.program)
        return "the program fits as it is"
    try:
        refuse_hopeless(best)
        if _solved_exactly(best):
            return "every order was considered"
        run(FIRST, best, always=True)
        kept = SETTINGS.kept_for_bounds_near if best.near else SETTINGS.kept_for_bounds
        with working_within(allowance().keeping(kept)):
            run(BETTER, best)
            run(IMPROVE, best)
        run(CERTIFY, best)
        _improve_further(best)
    except Impossible:
        lower_floor(best)
        raise over_budget(best.view.problem, best.floor_order, best.budget, proven=True) from None
    if best.closed:
        return "proven best"
    if allowance().meter.cut:
        return CUT
    return "stopped by the time limit" if best.left() < SETTINGS.used_up * best.whole else "nothing more helped"


def run(stages: tuple[Stage, ...], best: Incumbent, *, always: bool = False) -> None:
    """One stage after the other, those that are worth their time; `always` also where no work is left."""
    for stage in stages:
        if stage.name not in best.without and not best.closed and (always or best.left() > 0) and stage.worth(best):
            best.progress(stage.name)
            stage.run(best)


def _solved_exactly(best: Incumbent) -> bool:
    """Exhaustive search, where the problem is so small that it ends."""
    order, finished = solve_exactly(best.view.problem, best.budget)
    if order is not None:
        best.offer(order)
        best.raise_bound(best.extra)
    elif finished:
        raise Impossible
    return finished


def _improve_further(best: Incumbent) -> None:
    """Further rounds, while work is left and they gain something."""
    while best.order is not None and not best.closed and best.left() > SETTINGS.left_for_more * best.whole:
        before = best.extra
        run(IMPROVE, best)
        if best.extra >= before:
            return
