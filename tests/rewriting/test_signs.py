"""The variant that keeps signs trains as eager does, in any order, and takes the bytes that were predicted."""

import random
from typing import Any

import pytest
import torch

from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.packing import pack_bits, sign_backward
from lowtide.optimizer.update import UpdateForm
from lowtide.planning.policies import policy
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import problem_of, with_states
from lowtide.profiling.profile import profile
from lowtide.profiling.runs import run_plain
from lowtide.profiling.signs import sign_profiles
from lowtide.records.vocabulary import Purpose
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from lowtide.tracing.capture import Traced, trace
from tests.equality import Trained, eager_step
from tests.rewriting.orders import everything_again, random_order
from tests.rewriting.test_rewrite import adam, assert_trains_as_eager, tiled
from tests.zoo import ZOO, Case, often

WITH_SIGNS = ("convnet", "encoder", "t5", "segformer", "resnet", "autocast_convnet")


def setting(name: str, times: int = 1) -> tuple[Case, Trained, Trained, Traced]:
    """A traced model and its eager twin."""
    torch.manual_seed(0)
    case = tiled(ZOO[name](), times)
    ours = Trained(case.model, adam(case.model))
    theirs = ours.copy()
    return case, ours, theirs, trace(ours.model, ours.optimizer, case.batch, case.loss)


@pytest.mark.parametrize("name", often(WITH_SIGNS, ["convnet", "encoder"]))
def test_any_order_trains_as_eager_does(name: str) -> None:
    case, ours, theirs, traced = setting(name)
    signs = traced.finish(UpdateForm(), signs=True)
    assert signs.signs
    assert_trains_as_eager(case, ours, theirs, signs)
    step_problem = problem_of(signs, estimate(signs))
    orders = [random_order(step_problem, random.Random(seed), share=0.4) for seed in range(2)]
    for order in (everything_again(signs, step_problem), *orders):
        rewritten = rewrite(signs, step_problem.actions, order)
        verify(signs, rewritten)
        assert_trains_as_eager(case, ours, theirs, rewritten)


def test_bits_are_made_again_like_anything_else() -> None:
    case, ours, theirs, traced = setting("encoder")
    signs = traced.finish(UpdateForm(), signs=True)
    step_problem = problem_of(signs, estimate(signs))
    rewritten = rewrite(signs, step_problem.actions, everything_again(signs, step_problem))
    again = [op for op in rewritten.ops if op.purpose is Purpose.RECOMPUTE and op.node.target is pack_bits]
    assert len(again) == 2
    assert_trains_as_eager(case, ours, theirs, rewritten)


@pytest.mark.parametrize("broken", often(["inverted", "one off", "gradient kept"], 1))
def test_wrong_signs_are_noticed(broken: str) -> None:
    """The test above bites."""
    case, ours, theirs, traced = setting("encoder")
    signs = traced.finish(UpdateForm(), signs=True)
    stand_ins = {
        "inverted": (pack_bits, lambda x: ~pack_bits(x)),
        "one off": (pack_bits, lambda x: pack_bits(x.roll(1))),
        "gradient kept": (sign_backward, lambda gradient, bits: gradient.clone()),
    }
    target, stand_in = stand_ins[broken]
    name = str(target).replace(".", "_")
    assert name in signs.program.run.__globals__
    signs.program.run.__globals__[name] = stand_in
    with pytest.raises(AssertionError):
        assert_trains_as_eager(case, ours, theirs, signs, steps=1)


def profiles(traced: Traced) -> tuple[StepGraph, StepGraph, Any, Any]:
    """Both variants, measured."""
    plain, signs = traced.finish(UpdateForm()), traced.finish(UpdateForm(), signs=True)
    return plain, signs, *sign_profiles(profile(plain, runs=1), signs)


@pytest.mark.slow
@pytest.mark.parametrize("name", often(["encoder", "t5"], ["encoder"]))
def test_the_measured_peak_is_the_predicted_one(name: str) -> None:
    case, ours, _, traced = setting(name, 16)
    plain, signs, first, second = profiles(traced)
    step_problem = problem_of(signs, second)
    budget = int(step_problem.problem.resident_bytes + 0.6 * (first.peak_B - step_problem.problem.resident_bytes))
    meter, clock = meter_for(signs.device), clock_for(signs.device)
    eager_step(ours, case.batch, case.loss, 0)  # the optimizer has its state from here on
    ours.optimizer.zero_grad()
    for order in (
        step_problem.problem.program,
        random_order(step_problem, random.Random(0), share=0.1),
        policy("optimal").plan(step_problem.problem, budget, time_limit=1).schedule.ops,
    ):
        run = run_plain(rewrite(signs, step_problem.actions, order), signs.form.tensors(case.batch), clock, meter)
        predicted = simulate(*with_states(step_problem, order)).peak
        assert second.resident_B + run.peak <= predicted
        assert second.resident_B + run.peak == pytest.approx(predicted, rel=0.05)
    other = problem_of(plain, first)
    assert peak(step_problem.problem) < peak(other.problem)


def peak(problem: Any) -> int:
    """Of the program as it is."""
    return simulate(problem, problem.program).peak


@pytest.mark.slow
def test_one_profile_serves_both_variants() -> None:
    *_, traced = setting("t5", 4)
    plain, signs, first, second = profiles(traced)
    ours, theirs = problem_of(signs, second).problem, problem_of(plain, first).problem
    sizes = {storage.name: storage.bytes for storage in ours.storages}
    assert all(sizes[storage.name] == storage.bytes for storage in theirs.storages)
    times = {op.name: op.time for op in ours.ops}
    differing = {op.name for op in theirs.ops if times[op.name] != op.time}
    assert differing <= {op.name for op in plain.ops if op.op == "aten.threshold_backward.default"}
    assert all(times[f"signs_of_relu{k}"] > 0 for k in ("", "_1", "_2", "_3"))
    # A profile of the variant itself serves the captured step as well.
    problem_of(plain, profile(signs, runs=1, quick=True))


def test_a_step_is_measured_through_its_variant() -> None:
    *_, traced = setting("encoder", 4)
    plain, signs = traced.finish(UpdateForm()), traced.finish(UpdateForm(), signs=True)
    step_problem = problem_of(signs, estimate(signs))
    through = rewrite(signs, step_problem.actions, everything_again(signs, step_problem))
    measured = profile(plain, runs=1, quick=True, through=through)
    assert [record.name for record in measured.ops] == [op.name for op in plain.ops]
    first, second = sign_profiles(measured, signs)
    for graph, each in ((plain, first), (signs, second)):
        problem_of(graph, each)
