from dataclasses import replace

import pytest

from lowtide.forecast import Forecast
from lowtide.planning.problem import Problem, Storage
from lowtide.planning.simulate import simulate
from lowtide.records.profile import Profile
from lowtide.reporting.plan_view import counterparts, planned_view, unplanned_view
from lowtide.reporting.step_memory import as_captured
from lowtide.reporting.step_view import StepView, measured_view

from .plans import PACKED_B, chain_plan
from .synthetic import KIB, chain


def _layer(view: StepView, word: str) -> tuple[int, ...]:
    return next(layer.bytes for layer in view.layers if layer.word == word)


@pytest.mark.parametrize("profile", [chain(), None])
def test_the_layers_add_up_to_what_the_simulator_says(profile: Profile | None) -> None:
    plan, captured = chain_plan(), as_captured(chain_plan())
    assert planned_view(plan, profile).totals == Forecast(plan).timeline.live
    assert planned_view(plan, profile).ms == pytest.approx(Forecast(plan).timeline.time)
    assert unplanned_view(plan, profile).totals == simulate(captured, captured.program).live


def test_the_measured_layers_add_up_to_the_profile() -> None:
    view = measured_view(chain())
    assert view.totals == tuple(op.peak_mem_B for op in chain().ops)
    assert view.ms == pytest.approx(sum(op.runtime_ms for op in chain().ops))


def test_every_run_says_what_it_is_there_for() -> None:
    view = planned_view(chain_plan(), chain())
    assert [run.kind for run in view.runs] == [
        *("program", "program", "pack", "program", "program"),
        *("unpack", "recompute", "program", "program", "update"),
    ]
    again = next(run for run in view.runs if run.kind == "recompute")
    assert (again.name, again.module, again.source) == ("op1", "layers.1", "model.py:1")
    assert [run.phase for run in view.runs] == [
        *("forward", "forward", "", "forward", "backward", "", "forward", "backward", "backward", "optimizer"),
    ]


def test_what_the_plan_makes_again_and_packs_are_layers_of_their_own() -> None:
    view = planned_view(chain_plan(), chain())
    assert max(_layer(view, "activations, packed")) == PACKED_B
    assert max(_layer(view, "activations, made again")) == 2 * KIB
    assert _layer(view, "activations")[-1] == 0


def test_without_a_profile_the_residents_are_one_layer() -> None:
    assert set(_layer(planned_view(chain_plan(), None), "always there")) == {3 * KIB}


def test_storages_are_matched_by_maker_where_names_are_equal() -> None:
    profile = chain()
    same = replace(profile, storages=tuple(replace(s, name="same") for s in profile.storages if not s.resident))
    shifted = replace(
        same,
        storages=(*profile.storages[:3], *same.storages),
    )
    assert counterparts(chain_plan(shifted), shifted) == {s: s for s in range(9)}


def test_another_lane_runs_beside_compute() -> None:
    plan = chain_plan(lane="copy")
    view = planned_view(plan, chain())
    assert view.totals == Forecast(plan).timeline.live
    assert view.ms == pytest.approx(Forecast(plan).timeline.time)
    swaps = [(run.name, run.lane) for run in view.runs if run.kind == "swap"]
    assert swaps == [("offload_op0", "copy"), ("release_op0", "compute"), ("prefetch_op0", "copy")]
    out = next(k for k, run in enumerate(view.runs) if run.lane == "copy")
    assert view.runs[out + 1].start_ms == view.runs[out].start_ms, "compute does not wait for the copy"
    assert max(_layer(view, "activations, made again")) == 2 * KIB, "what comes back is there again"


def test_two_storages_of_one_op_are_told_apart() -> None:
    profile, plan = chain(), chain_plan()
    extra = replace(profile.storages[3], name="mask")
    makes_two = replace(profile.ops[0], makes=(3, 9))
    profile = replace(profile, storages=(*profile.storages, extra), ops=(makes_two, *profile.ops[1:]))
    writes_two = replace(plan.problem.ops[0], writes=(3, 10))
    storages = (*plan.problem.storages, Storage(KIB, name="mask"))
    plan = replace(plan, problem=Problem("two", storages, (writes_two, *plan.problem.ops[1:])))
    assert counterparts(plan, profile) == {**{s: s for s in range(9)}, 10: 9}
