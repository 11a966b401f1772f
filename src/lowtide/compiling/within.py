"""A compiled graph made to fit: measured on the tensors of a call, planned within what its loop leaves to it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, fx

from lowtide.compiling.settings import Settings
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import LetGo, StepGraph
from lowtide.kernels.boundary import opening
from lowtide.planning.policies import BudgetInfeasible, quiet
from lowtide.planning.problem import Problem
from lowtide.planning.sharing import Limits, Point
from lowtide.planning.simulate import simulate
from lowtide.profiling.profile import profile
from lowtide.records.profile import Profile, StorageRecord
from lowtide.records.step_plan import Act, StepPlan
from lowtide.records.vocabulary import Role
from lowtide.training.pipeline import NEAR_THE_FLOOR, PLANNING_STEPS, provisional_seconds, provisional_step
from lowtide.training.planned import Planned, Variant, apply_plan, frontier_plans, make_plan

LEAST_SECONDS, MOST_SECONDS = 5.0, 60.0
"""What planning a graph may take where no limit is given, between these by the time of its ops."""
POINTS = 8
"""Plans of a graph that others share the budget with: from what it takes as it is to the least."""
OUTSIDE = "outside of the graph"


def measured(graph: StepGraph, tensors: Sequence[Tensor], room: int, settings: Settings) -> Profile:
    """`graph` measured on `tensors` while it takes no more than about `room` bytes, inputs included."""
    outputs: Any = _boundary(graph).node.args[0]
    gradients = _boundary(graph).makes[1:]
    nobody = LetGo(*(frozenset(range(len(things))) for things in (outputs, gradients)))  # holds anything meanwhile
    graph = replace(graph, let_go=nobody)
    seconds = provisional_seconds(graph, settings.time_limit)
    through = provisional_step(graph, None, room, seconds=seconds, say=quiet)
    inputs = [x.detach() for x in tensors]  # parameters among them
    found = profile(graph, inputs, runs=2, quick=True, through=through)
    boundary = _boundary(graph)
    ops = [replace(op, runtime_ms=0.0, workspace_B=0) if op.rank == boundary.rank else op for op in found.ops]
    return replace(found, ops=tuple(ops))


def plan_within(
    graph: StepGraph,
    found: Profile,
    limits: Limits,
    settings: Settings,
    *,
    share: float = 1.0,
    budget: int | None = None,
) -> Planned:
    """The fastest plan of the measured graph within `limits`; BudgetInfeasible where there is none.

    It may take a `share` of the usual time. A `budget` above that of the settings gives way by as much.
    """
    wanted = settings.budget_bytes
    assert wanted is not None
    chosen, plan = make_plan(
        Variant(graph, surrounded(graph, found, limits, wanted)),
        None,
        wanted if budget is None else budget,
        name=settings.policy,
        time_limit=seconds(found, settings) * share,
        say=quiet,
    )
    return apply_plan(chosen, plan)


def plan_low(
    graph: StepGraph, found: Profile, limits: Limits, infeasible: BudgetInfeasible, settings: Settings
) -> Planned:
    """A plan close to the least peak: where the graph must do with less than it can, until others make room."""
    for share in NEAR_THE_FLOOR:
        try:
            budget = int(share * infeasible.floor)
            return plan_within(graph, found, limits, settings, share=1 / len(NEAR_THE_FLOOR), budget=budget)
        except BudgetInfeasible:
            continue
    raise infeasible


def ladder(graph: StepGraph, found: Profile, limits: Limits, settings: Settings) -> list[StepPlan]:
    """Plans of the measured graph between others that leave `limits`, from what it takes as it is down to the least
    that was reached. Not all of them are within the budget: who else gives way is still open."""
    budget = settings.budget_bytes
    assert budget is not None
    around = surrounded(graph, found, limits, budget)
    return frontier_plans(Variant(graph, around), points=POINTS, time_limit=seconds(found, settings), say=quiet)


def seconds(found: Profile, settings: Settings) -> float:
    """For one plan."""
    usual = min(MOST_SECONDS, max(LEAST_SECONDS, PLANNING_STEPS * found.step_ms / 1000))
    return usual if settings.time_limit is None else settings.time_limit


def surrounded(graph: StepGraph, found: Profile, limits: Limits, budget: int) -> Profile:
    """`found` with the bytes of others that leave just `limits` of `budget` to the graph: always, in forward alone,
    from the boundary on, and at it."""
    before, after = _others(graph)
    inputs, fixed = fixed_bytes(graph, found)
    dying = sum(found.storages[s].bytes for s in _let_go(graph))
    room = min(budget, max(inputs + limits.forward, inputs + fixed + limits.backward))
    in_forward = max(0, room - inputs - limits.forward)
    behind = max(0, room - inputs - fixed - limits.backward)
    between = max(0, room - in_forward - behind - inputs - fixed - dying - limits.saved)
    sizes = {before: in_forward, after: behind}
    storages = [replace(s, bytes=sizes.get(k, s.bytes)) for k, s in enumerate(found.storages)]
    storages.append(StorageRecord(OUTSIDE, budget - room, Role.OTHER, True, None, None))
    rank = _boundary(graph).rank
    ops = [replace(op, workspace_B=between) if op.rank == rank else op for op in found.ops]
    return replace(found, storages=tuple(storages), ops=tuple(ops), step_peak_B=found.step_peak_B + budget - room)


def fixed_bytes(graph: StepGraph, found: Profile) -> tuple[int, int]:
    """Bytes that no plan changes: of the inputs, and of the outputs with their gradients when backward begins."""
    boundary, (before, _) = _boundary(graph), _others(graph)
    inputs = sum(found.storages[s.index].bytes for s in graph.storages if s.resident)
    made = {s for s in (*boundary.reads, *boundary.makes) if s != before and not graph.storages[s].resident}
    return inputs, sum(found.storages[s].bytes for s in made - _let_go(graph))


def point_of(graph: StepGraph, plan: StepPlan) -> Point:
    """A plan as the other graphs see it, with what is held outside of `graph` as that is known now."""
    boundary, (before, after) = _boundary(graph), _others(graph)
    let_go = _let_go(graph)
    made = {s for s in (*boundary.reads, *boundary.makes) if s not in (before, after)} - let_go
    fixed = sum(plan.problem.storages[s].bytes for s in made if not graph.storages[s].resident)
    known = [replace(s, keep=k in graph.kept) for k, s in enumerate(plan.exact.storages[: len(graph.storages)])]
    exact = replace(plan.exact, storages=(*known, *plan.exact.storages[len(known) :]))
    held, left = exact.storages[before].bytes, exact.storages[after].bytes
    op = next(o for o, a in enumerate(plan.actions) if a.act is Act.RUN and a.ranks == (boundary.rank,))
    line = simulate(exact, plan.exact_order)
    place = plan.exact_order.index(op)
    dying = sum(exact.storages[s].bytes for s in let_go - _read_first(exact, plan.exact_order[place + 1 :]))
    there = line.live[place] - exact.ops[op].workspace - held - dying
    return Point(
        forward=max(line.live[:place]) - line.resident - held,
        saved=there - line.resident - left - fixed,
        backward=max((*line.live[place + 1 :], there)) - there,
        time=line.time,
    )


def all_let_go(graph: StepGraph) -> LetGo:
    """What could be gone when backward runs: the gradients of outputs, and outputs that backward does not read."""
    boundary = _boundary(graph)
    wanted = {s for op in graph.ops[boundary.rank + 1 :] for s in op.reads}
    free = {k for k, s in _returned(graph).items() if s not in wanted and not graph.storages[s].resident}
    return LetGo(frozenset(free), frozenset(range(len(boundary.makes) - 1)))


def _returned(graph: StepGraph) -> dict[int, int]:
    """The storages of forward's outputs, by place."""
    returned: Any = _boundary(graph).node.args[0]
    made = {made.name: made.storage for op in graph.ops for made in op.outputs}
    return {k: made[x.name] for k, x in enumerate(returned) if isinstance(x, fx.Node) and x.name in made}


def _let_go(graph: StepGraph) -> set[int]:
    """The storages of outputs that are gone when backward begins."""
    returned = _returned(graph)
    return {returned[k] for k in graph.let_go.outputs} - graph.kept


def _read_first(problem: Problem, order: Sequence[int]) -> set[int]:
    """The storages that `order` reads before it writes them."""
    read: set[int] = set()
    written: set[int] = set()
    for o in order:
        read |= set(problem.ops[o].reads) - written
        written |= set(problem.ops[o].writes)
    return read


def _boundary(graph: StepGraph) -> Op:
    assert graph.boundary is not None, "a compiled graph has a boundary"
    return graph.boundary


def _others(graph: StepGraph) -> tuple[int, int]:
    """The storages that stand for what others hold in forward alone, and from the boundary on."""
    first = next(op for op in graph.ops if op.node.target is opening)
    return first.makes[0], _boundary(graph).makes[0]
