"""The default policy where a problem has lanes: recompute, pack and swap together, never worse than without swaps.

An instant's integer program chooses what is swapped; the search then plans the rest around that, as a problem without
lanes; the swaps are put back and the simulator judges. docs/planner.md says more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lowtide.planning.optimal import search
from lowtide.planning.optimal.certify import ranked_instants
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.refuse import hopeless_op
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.swapping.arrange import absences, arrange, without_lanes
from lowtide.planning.optimal.swapping.choice import Lanes, chosen_swaps, instant_bound
from lowtide.planning.optimal.work import Allowance, working_within
from lowtide.planning.policies import BudgetInfeasible, Plan, Progress, judged, mutwo, quiet
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import simulate
from lowtide.planning.swap_places import placed
from lowtide.planning.swaps import Swap, swaps_of


@dataclass
class _Best:
    """The fastest order within the budget so far, and the least peak seen."""

    problem: Problem
    budget: int
    order: tuple[int, ...] | None = None
    time: float = float("inf")
    note: str = ""
    failed: list[BudgetInfeasible] = field(default_factory=list)

    def offer(self, order: Sequence[int], note: str) -> None:
        timeline = simulate(self.problem, order)
        if timeline.peak <= self.budget and timeline.time < self.time:
            self.order, self.time, self.note = tuple(order), timeline.time, note

    @property
    def extra(self) -> float:
        """Time beyond the program's."""
        return self.time - self.problem.base_time


def plan(problem: Problem, budget: int, *, time_limit: float = 60.0, seed: int = 0, progress: Progress = quiet) -> Plan:
    """The fastest schedule found within `budget`, with a bound on any; BudgetInfeasible where there is none."""
    if not problem.lanes:
        return search.plan(problem, budget, time_limit=time_limit, seed=seed, progress=progress)
    allowance = Allowance.of(time_limit)
    best = _Best(problem, budget)
    bare = without_lanes(problem)
    progress("without swaps")
    alone = _planned(best, bare.problem, SETTINGS.swap_alone * time_limit, seed, progress)
    if alone is not None:
        best.offer([bare.original[o] for o in alone.schedule.ops], f"without swaps: {alone.note}")
    lanes = Lanes(problem, tuple(swaps_of(problem).values()))
    bound = 0.0
    if lanes.swaps and best.extra > 0:
        bound = _with_swaps(best, lanes, ProgramView(bare.problem), allowance, time_limit, seed, progress)
    if best.order is None:
        raise _least(best)
    base = problem.base_time
    bound = min(bound, best.extra) / base if base else 0.0
    seconds = allowance.meter.spent()
    return judged(problem, best.order, budget, policy="optimal", seconds=seconds, bound=bound, note=best.note)


def _with_swaps(
    best: _Best, lanes: Lanes, bare: ProgramView, allowance: Allowance, time_limit: float, seed: int, progress: Progress
) -> float:
    """Offer plans with swaps; returns the bound on any schedule."""
    problem, budget = best.problem, best.budget
    progress("choosing swaps")
    seconds = SETTINGS.swap_choosing * time_limit / SETTINGS.swap_solves
    tried: set[frozenset[int]] = set()
    with working_within(allowance):
        ranked = ranked_instants(lanes.view, budget, most=SETTINGS.swap_ranked, seconds=seconds)
        instants = [instant for _, instant in ranked[: SETTINGS.swap_instants]]
        bound = 0.0
        sets: list[tuple[float, int, list[Swap]]] = []
        for instant in instants:
            bound = max(bound, instant_bound(lanes, budget, instant, seconds=seconds))
            for share in SETTINGS.swap_lanes:
                cost, chosen = chosen_swaps(lanes, budget, instant, share=share, seconds=seconds)
                key = frozenset(swap.storage for swap in chosen)
                if chosen and not any(len(key ^ known) <= SETTINGS.swap_same * len(key) for known in tried):
                    tried.add(key)
                    sets.append((cost, instant, chosen))
    sets.sort(key=lambda entry: entry[:2])
    left = (1 - SETTINGS.swap_alone - SETTINGS.swap_choosing) * time_limit
    for nth, (_, instant, chosen) in enumerate(sets):
        if best.extra <= bound:
            break
        progress(f"around {len(chosen)} swaps")
        arranged = arrange(problem, absences(problem, bare, chosen, instant))
        seconds = left if nth + 1 == len(sets) else SETTINGS.swap_first * left
        left -= seconds
        found = _planned(best, arranged.problem, seconds, seed + nth, progress)
        if found is not None:
            order = arranged.with_swaps(chosen, found.schedule.ops)
            best.offer(placed(problem, order, chosen, budget), f"{len(chosen)} swaps: {found.note}")
    try:
        greedy = mutwo.plan(problem, budget, time_limit=time_limit)
    except BudgetInfeasible as infeasible:
        best.failed.append(infeasible)
    else:
        best.offer(greedy.schedule.ops, f"mutwo: {greedy.note}")
    return bound


def _planned(best: _Best, problem: Problem, seconds: float, seed: int, progress: Progress) -> Plan | None:
    """The search's plan of a problem without lanes; None where it finds nothing within the budget."""
    try:
        return search.plan(problem, best.budget, time_limit=seconds, seed=seed, progress=progress)
    except BudgetInfeasible as infeasible:
        best.failed.append(infeasible)
        return None


def _least(best: _Best) -> BudgetInfeasible:
    """The one that came closest; with swaps, only an op that alone needs too much is a proof."""
    closest = min(best.failed, key=lambda each: each.floor)
    proven = hopeless_op(ProgramView(without_lanes(best.problem).problem), best.budget) is not None
    blockers = [(s, size) for s, size in closest.blockers if s < len(best.problem.storages)]
    return BudgetInfeasible(
        best.problem,
        best.budget,
        floor=closest.floor,
        proven=proven,
        blockers=blockers,
        workspace=closest.workspace,
    )
