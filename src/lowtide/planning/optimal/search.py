"""The order of the search: proofs first, then candidates from the cheapest on, then improvement."""

from lowtide.planning.optimal.candidates import (
    byte_price,
    from_beam,
    from_chain,
    from_instants,
    from_nested,
    from_policies,
    from_regrowth,
    from_spine,
    from_stages,
)
from lowtide.planning.optimal.certify import hopeless_op, is_impossible, joint_bound, ranked_instants, solve_instant
from lowtide.planning.optimal.cutting import price_bound
from lowtide.planning.optimal.exact import is_tiny, solve_exactly
from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.floor import lower_floor
from lowtide.planning.optimal.gather import impossible_op
from lowtide.planning.optimal.improve import improve
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.work import Meter, metered
from lowtide.planning.policies import BudgetInfeasible, Plan, Progress, judged, over_budget, quiet
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import peak_of

NEAR = 0.5
"""Share of the room by which one instant's order may exceed it for a few more instants to be likely to help."""
BOUNDING = 0.15
"""Share of the time that is left for a better bound."""
PERCENTS = (100, 98, 102, 104, 106, 109, 112, 116)
"""Parts of the room that nested blocks are solved for."""
SMALL = 400
"""Most ops of a program for which every instant is tried."""
LARGE = 4000
"""Most ops of a program for which several instants pay, and the repair of many nested plans."""
GROWING, GROWING_LITTLE = 0.14, 0.03
"""Shares of all the work for one walk of ruin and recreate, where the gap is wide and where it is not."""
FITTING = 0.25
"""Share for walks towards a first plan."""
APART = 0.005
"""Gap, as a share of the program's time, that is wide in a program of many ops that is no chain of blocks."""
LEFT = 0.3
"""Share of the work that must be left for another round of improvement."""
TRACED = 12
"""Ops of which it is tried to prove that their inputs cannot be at hand together."""
GROUPED = 0.005
"""Gap, as a share of the program's time, from which the bound by groups of links is tried."""
CUT = "cut off by the clock: another run may differ"


def plan(problem: Problem, budget: int, *, time_limit: float = 60.0, seed: int = 0, progress: Progress = quiet) -> Plan:
    """The fastest schedule found within `budget`, with a bound on any; BudgetInfeasible where there is none."""
    meter = Meter.of(time_limit)
    peak_of(problem, problem.program)  # refuses what cannot be simulated
    best = Incumbent(Facts(problem), budget, meter, seed, progress)
    with metered(meter):
        note = search(best)
    if best.order is None:
        raise over_budget(problem, best.floor_order, budget)
    base = problem.base_time
    bound = min(best.bound, best.extra) / base if base else 0.0
    return judged(problem, best.order, budget, policy="optimal", seconds=meter.spent(), bound=bound, note=note)


def search(best: Incumbent) -> str:
    """Fill `best`; how it ended, in a few words. BudgetInfeasible where that is proven."""
    facts, budget, problem = best.facts, best.budget, best.facts.problem
    if int(facts.live.max()) <= budget:
        best.offer(problem.program, "the program order")
        return "the program fits as it is"
    _refuse_hopeless(best)
    if is_tiny(problem):
        exact = solve_exactly(problem, budget)
        if exact.order is not None:
            best.offer(exact.order, "exhaustive search")
            best.raise_bound(best.extra)
        elif exact.finished:
            _refuse(best)
        if exact.finished:
            return "every order was considered"
    best.progress("bounding")
    ranked = ranked_instants(facts, budget, most=80 if facts.count <= SMALL else 8, seconds=2.0)
    if is_impossible(ranked[0][0]):
        _refuse(best)
    best.raise_bound(ranked[0][0])
    if facts.count <= LARGE:
        best.offer(problem.program, "repair of the program order")
    from_policies(best)
    near = True
    for relaxed, instant in ranked[:2]:
        if relaxed < 0.97 * ranked[0][0]:
            break
        outcome = solve_instant(facts, budget, instant, seconds=0.08 * best.left())
        if is_impossible(outcome.bound):
            _refuse(best)
        best.raise_bound(outcome.bound)
        if outcome.decision is not None:
            order = best.offer_decision(outcome.decision, "one instant")
            near = near and order is not None and best.over(order) < NEAR * (budget - problem.resident_bytes)
    if best.order is None:
        from_regrowth(best, FITTING)
    if best.order is None or (facts.count <= LARGE and best.far):
        from_beam(best, (1,))
    top = ranked[0][1]
    if facts.count <= SMALL:  # ever more instants, which may end with the best there is
        from_instants(best, [top], rounds=20, seconds=0.12 * best.left(), at_once=2)
    elif near and facts.count <= LARGE:
        from_instants(best, [top], rounds=8, seconds=0.12 * best.left())
    bounding = BOUNDING * best.whole / (3 if near else 1)  # where one instant is near, more of them add little
    best.meter.whole -= bounding
    price = byte_price(best, top)
    percents = PERCENTS if facts.count <= LARGE else PERCENTS[:3]  # their repair takes long
    nested = [from_nested(best, 32, price, percents)]
    if best.left() > 0.5 * best.whole:
        nested.append(from_nested(best, 64, price, percents))
    chain = any(nested)
    wide = best.far or (not chain and best.above(0 if facts.count <= SMALL else APART))
    growing = GROWING if wide else GROWING_LITTLE
    if wide and chain:
        from_spine(best, top, GROWING)
    elif wide:
        for anew in (True, True, False):
            from_regrowth(best, GROWING, anew=anew)
    if not chain and (best.order is None or not best.far):  # blocks and stages do not help where the gap is wide
        from_chain(best, 16, (1, 2, 3, 4, 6), price)
        for count, share in ((16, 0.2), (8, 0.08), (24, 0.08)):
            from_stages(best, count, 1, seconds=share * best.left())
    _improve(best, growing)
    best.meter.whole += bounding
    _bound_more(best, top, price, near=near)
    while best.order is not None and not best.closed and best.left() > LEFT * best.whole:
        before = best.extra
        _improve(best, growing)
        if best.extra >= before:
            break
    if best.closed:
        return "proven best"
    if best.meter.cut:
        return CUT
    return "stopped by the time limit" if best.left() < 0.2 * best.whole else "nothing more helped"


def _improve(best: Incumbent, growing: float) -> None:
    """Ranges of the best order solved anew, between walks of ruin and recreate."""
    from_regrowth(best, GROWING_LITTLE)
    best.meter.whole -= growing * best.whole
    improve(best)
    best.meter.whole += growing * best.whole
    from_regrowth(best, growing)


def _bound_more(best: Incumbent, top: int, price: float, *, near: bool) -> None:
    """Several instants bound more than one, also where their own order is of no use."""
    facts = best.facts.plain
    if best.closed or best.left() <= 1:
        return
    if best.above(GROUPED):
        from lowtide.planning.optimal.spine.bound import spine_bound  # compiled code is loaded only where it is used

        best.raise_bound(spine_bound(facts, best.budget, top, known=best.bound, left=best.left))
    bound = price_bound(facts, best.budget, top, price=price, left=best.left, found=best.raise_bound)
    if not bound and not near:
        best.raise_bound(joint_bound(facts, best.budget, top, most=20, seconds=0.9 * best.left()))


def _refuse_hopeless(best: Incumbent) -> None:
    """One op that alone needs more than the budget, or whose inputs cannot all be at hand within it."""
    o = hopeless_op(best.facts, best.budget)
    if o is None:
        o = impossible_op(best.facts, best.budget, ops=TRACED, sets=50)
    if o is None:
        return
    problem = best.facts.problem
    storages = {*problem.reads[o], *problem.writes[o]}
    blockers = sorted(((s, problem.sizes[s]) for s in storages), key=lambda entry: (-entry[1], entry[0]))
    lower_floor(best)
    workspace = (problem.ops[o].name, problem.workspaces[o])
    raise BudgetInfeasible(problem, best.budget, floor=best.floor, proven=True, blockers=blockers, workspace=workspace)


def _refuse(best: Incumbent) -> None:
    lower_floor(best)
    raise over_budget(best.facts.problem, best.floor_order, best.budget, proven=True)
