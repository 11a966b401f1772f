"""Plans for the graphs of a loop: for one at its first call, and for all of them together within one budget."""

from collections.abc import Sequence
from traceback import clear_frames

from torch import Tensor

from lowtide.compiling.compiled_graph import CompiledGraph
from lowtide.compiling.settings import Settings
from lowtide.compiling.within import fixed_bytes, ladder, measured, plan_low, plan_within, point_of
from lowtide.errors import LowtideError
from lowtide.planning.policies import BudgetInfeasible
from lowtide.planning.sharing import Event, Limits, Point, choose, limits_of, peak_of
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
    assert graph.profile is not None
    assert settings.budget_bytes is not None
    _, fixed = fixed_bytes(graph.captured, graph.profile)
    limits = Limits(room, settings.budget_bytes, room - fixed)
    try:
        graph.use(plan_within(graph.captured, graph.profile, limits, settings, share=FIRST_SHARE))
    except BudgetInfeasible as infeasible:
        if not others_wait:
            raise
        forget(infeasible)
        graph.use(plan_low(graph.captured, graph.profile, limits, infeasible, settings))


def plan_together(
    graphs: Sequence[CompiledGraph], events: Sequence[Event], points: list[Point], budget: int, settings: Settings
) -> list[Point]:
    """New plans for all of them: alone a graph gets all that is left. Several, or several calls of one that are
    open at once, first share by a common price, then each gets what the others leave."""
    if len(graphs) == 1 and not any(event.is_nested for event in events):
        return [_plan_alone(graphs[0], limits_of(0, events, points, budget), settings)]
    ladders = [_ladder(graph, settings) for graph in graphs]
    found = choose([[point for _, point in steps] for steps in ladders], events, budget)
    if found is None:
        least = [min((p for _, p in steps), key=lambda p: p.weight) for steps in ladders if steps]
        raise SharedBudgetUnreachable(len(graphs), budget, peak_of(events, least) if all(ladders) else budget)
    for graph, steps, k in zip(graphs, ladders, found, strict=True):
        graph.use(apply_plan(graph.captured, steps[k][0]))
    points = [steps[k][1] for steps, k in zip(ladders, found, strict=True)]
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


def _plan_alone(graph: CompiledGraph, limits: Limits, settings: Settings) -> Point:
    assert graph.profile is not None
    return graph.use(plan_within(graph.captured, graph.profile, limits, settings))


def _ladder(graph: CompiledGraph, settings: Settings) -> list[tuple[StepPlan, Point]]:
    if graph.ladder is None:
        assert graph.profile is not None
        plans = ladder(graph.captured, graph.profile, settings)
        graph.ladder = [(plan, point_of(graph.captured, plan)) for plan in plans]
    return graph.ladder
