"""The picture of the lanes, and what pages show of collectives beside compute."""

from pathlib import Path

from lowtide.planning.flights import Part
from lowtide.planning.simulate import simulate
from lowtide.records.step_plan import Act, Action, Identity, StepPlan
from lowtide.reporting.plan_view import planned_view, unplanned_view
from lowtide.reporting.step_lanes import draw_lanes
from lowtide.reporting.step_memory import as_captured, draw_step_memory
from tests.planning.test_flights import found, sharded

ACTS = {
    Part.START: Act.START,
    Part.WAIT: Act.WAIT,
    Part.FLIGHT: Act.BESIDE,
    Part.DRAG: Act.BESIDE,
    Part.OVER: Act.BESIDE,
}


def plan() -> StepPlan:
    beside = found()
    assert beside is not None
    problem, _, updates = sharded()
    actions = [
        Action(ACTS.get(part, Act.UPDATE if ops[0] in updates else Act.RUN), ops, None, "", "net.py:1")
        for part, ops in beside.steps
    ]
    return StepPlan(
        step=Identity("Net", "Adam", ("float32[1]",), "cpu", "2.13.0", "only step", "hash"),
        budget=10**9,
        policy="optimal",
        unplanned_peak=simulate(problem, problem.program).peak,
        rewritten=True,
        problem=beside.problem,
        actions=tuple(actions),
        activations=(),
        order=beside.order,
        exact=beside.problem,
        exact_order=beside.order,
        bound=-0.1,
        seconds=0.0,
        note="",
    )


def test_pictures(tmp_path: Path) -> None:
    draw_lanes(plan(), {"gather0"}, "Net", tmp_path / "lanes.png")
    draw_step_memory(plan(), "Net", tmp_path / "memory.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("lanes.png", "memory.png"))


def test_as_captured_every_collective_is_waited_for_at_once() -> None:
    problem, _, updates = sharded()
    at_once = as_captured(plan())
    last = [o for o in range(len(problem.ops)) if o not in updates] + updates
    assert simulate(at_once, at_once.program).peak == simulate(problem, problem.program).peak
    names = [op.name for op in at_once.ops if op.name in {problem.ops[o].name for o in last}]
    assert names == [problem.ops[o].name for o in last]


def test_runs_know_their_lane() -> None:
    view = planned_view(plan(), None)
    assert {run.lane for run in view.runs if run.kind == "collective"} == {"compute", "link"}
    assert {run.kind for run in view.runs if run.name.startswith("gather") and run.lane == "compute"} >= {"program"}
    assert "collective" in {run.kind for run in unplanned_view(plan(), None).runs}
