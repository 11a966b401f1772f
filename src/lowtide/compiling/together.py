"""Plans for the graphs of a loop: for one at its first call, and for all of them together within one budget."""

from collections.abc import Sequence
from traceback import clear_frames

from torch import Tensor

from lowtide.compiling.compiled_graph import CompiledGraph
from lowtide.compiling.settings import Settings
from lowtide.compiling.within import all_let_go, fixed_bytes, ladder, measured, plan_low, plan_within, point_of
from lowtide.errors import LowtideError
from lowtide.planning.policies import BudgetInfeasible
from lowtide.planning.sharing import Event, Limits, Point, choose, least_of, limits_of, lowest, peak_of
from lowtide.records.step_plan import StepPlan
from lowtide.training.planned import apply_plan
from lowtide.units import format_bytes

FIRST_SHARE = 0.3
"""Of the usual time for a plan: what the first one of a graph may take, which seldom stays."""


class SharedBudgetUnreachable(BudgetInfeasible):
    """Several graphs do not fit together."""

    def __init__(self, graphs: int, budget: int, floor: int) -> None:
        self.budget, self.floor, self.proven, self.blockers, self.workspace = budget, floor, False, (), ("", 0)
        LowtideError.__init__(
            self,
            f"no plan was found that keeps the compiled graphs of the step ({graphs}) within {format_bytes(budget)} "
            f"({budget} bytes): the least peak reached is {format_bytes(floor)} ({floor} bytes); a smaller batch helps",
        )


def forget(infeasible: BudgetInfeasible) -> None:
    """It is not raised: let go of the frames that it came through, which hold it and, behind them, a call's tensors."""
    clear_frames(infeasible.__traceback__)


def bytes_of(tensors: Sequence[Tensor]) -> int:
    """Of their storages, each counted once."""
    return sum({x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in tensors}.values())


def measure(graph: CompiledGraph, inputs: Sequence[Tensor], room: int, settings: Settings) -> None:
    """Measure `graph` on the tensors of a call, with `room` bytes beside them; ProfileError where that fails."""
    constants = len(graph.captured.residents)
    graph.profile = measured(graph.captured, inputs[constants:], bytes_of(inputs) + room, settings)


def plan_first(graph: CompiledGraph, room: int, settings: Settings, *, others_wait: bool) -> None:
    """Plan a measured graph for `room` bytes; where `others_wait` for their backward and nothing fits, near the least
    that it can do with, until all are planned together."""
    try:
        return _plan_in(graph, room, settings)
    except BudgetInfeasible as infeasible:
        if graph.has_seen and not others_wait:
            raise
        forget(infeasible)
    if not graph.has_seen:  # what may be gone when backward runs is taken for gone, until a backward has shown it
        graph.counts_on(all_let_go(graph.captured))
    try:
        _plan_in(graph, room, settings)
    except BudgetInfeasible as infeasible:
        if not others_wait:
            raise
        forget(infeasible)
        assert graph.profile is not None
        limits = _limits_in(graph, room, settings)
        graph.use(plan_low(graph.captured, graph.profile, limits, infeasible, settings))


def _plan_in(graph: CompiledGraph, room: int, settings: Settings) -> None:
    assert graph.profile is not None
    limits = _limits_in(graph, room, settings)
    graph.use(plan_within(graph.captured, graph.profile, limits, settings, share=FIRST_SHARE))


def _limits_in(graph: CompiledGraph, room: int, settings: Settings) -> Limits:
    assert graph.profile is not None
    assert settings.budget_bytes is not None
    _, fixed = fixed_bytes(graph.captured, graph.profile)
    return Limits(room, settings.budget_bytes, room - fixed)


def plan_together(
    graphs: Sequence[CompiledGraph], events: Sequence[Event], points: list[Point], budget: int, settings: Settings
) -> list[Point]:
    """New plans for all of them: alone a graph gets all that is left. Several, or several calls of one that are
    open at once, first share by a common price, then each gets what the others leave."""
    if _is_alone(graphs, events):
        return [_plan_alone(graphs[0], limits_of(0, events, points, budget), settings)]
    ladders = _ladders(graphs, events, points, budget, settings)
    found = choose(_points(ladders), events, budget)
    if found is None:
        raise SharedBudgetUnreachable(len(graphs), budget, peak_of(events, _lowest(ladders, events)))
    points = _use(graphs, ladders, found)
    for k, graph in enumerate(graphs):
        before = graph.planned
        assert before is not None
        try:
            point = _plan_alone(graph, limits_of(k, events, points, budget), settings)
        except BudgetInfeasible as infeasible:  # the one from the ladder stays
            forget(infeasible)
            continue
        other = [*points[:k], point, *points[k + 1 :]]
        if peak_of(events, other) <= budget and point.time < points[k].time:
            points = other
        else:
            graph.use(before)
    return points


def plan_lowest(
    graphs: Sequence[CompiledGraph],
    events: Sequence[Event],
    points: list[Point],
    infeasible: BudgetInfeasible,
    settings: Settings,
) -> list[Point]:
    """Plans near the least peak, where `plan_together` has found none within the budget."""
    budget = infeasible.budget
    if _is_alone(graphs, events):
        graph, limits = graphs[0], limits_of(0, events, points, budget)
        assert graph.profile is not None
        return [graph.use(plan_low(graph.captured, graph.profile, limits, infeasible, settings))]
    ladders = _ladders(graphs, events, points, budget, settings)
    return _use(graphs, ladders, lowest(_points(ladders), events))


def _is_alone(graphs: Sequence[CompiledGraph], events: Sequence[Event]) -> bool:
    return len(graphs) == 1 and not any(event.is_nested for event in events)


def _plan_alone(graph: CompiledGraph, limits: Limits, settings: Settings) -> Point:
    assert graph.profile is not None
    return graph.use(plan_within(graph.captured, graph.profile, limits, settings))


Ladder = list[tuple[StepPlan, Point]]


def _ladders(
    graphs: Sequence[CompiledGraph], events: Sequence[Event], points: Sequence[Point], budget: int, settings: Settings
) -> list[Ladder]:
    """Of each graph plans from what it takes as it is to the least, between the others: those that take little come
    first, and count from then on with the least that they need. So what a graph leaves while others run is among what
    its plans lower."""
    there = list(points)
    found: dict[int, Ladder] = {}
    for k in sorted(range(len(graphs)), key=lambda k: max(there[k].forward, there[k].saved + there[k].backward)):
        graph, limits = graphs[k], limits_of(k, events, there, budget)
        place = (limits.forward - limits.backward, limits.saved - limits.backward)
        if graph.ladder is None or graph.ladder[0] != place:
            assert graph.profile is not None
            plans = ladder(graph.captured, graph.profile, limits, settings)
            graph.ladder = (place, [(plan, point_of(graph.captured, plan)) for plan in plans])
        found[k] = graph.ladder[1]
        there[k] = least_of([point for _, point in found[k]])
    return [found[k] for k in range(len(graphs))]


def _points(ladders: Sequence[Ladder]) -> list[list[Point]]:
    return [[point for _, point in ladder] for ladder in ladders]


def _lowest(ladders: Sequence[Ladder], events: Sequence[Event]) -> list[Point]:
    points = _points(ladders)
    return [ladder[k] for ladder, k in zip(points, lowest(points, events), strict=True)]


def _use(graphs: Sequence[CompiledGraph], ladders: Sequence[Ladder], places: Sequence[int]) -> list[Point]:
    for graph, steps, k in zip(graphs, ladders, places, strict=True):
        graph.use(apply_plan(graph.captured, steps[k][0]))
    return [steps[k][1] for steps, k in zip(ladders, places, strict=True)]
