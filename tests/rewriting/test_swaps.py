"""Steps whose values leave the device and come back: equal to eager, inside the predicted bytes, proven on paper."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lowtide
from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.device.swap import SwapSpace, open_space
from lowtide.errors import RewriteError
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Ledger
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import Lanes, StepProblem, problem_of, with_states
from lowtide.profiling.runs import no_collection
from lowtide.records.profile import Profile
from lowtide.records.transfer import TransferSample
from lowtide.records.vocabulary import Purpose
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from tests.equality import Trained, eager_step
from tests.rewriting.orders import random_swaps
from tests.rewriting.test_rewrite import adam, assert_trains_as_eager, tiled
from tests.zoo import ZOO, often

LANES = Lanes("copy", "copy", least_bytes=1)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[SwapSpace]:
    """A swap space on disk."""
    opened = open_space("disk", torch.device("cpu"), tmp_path)
    opened.reserve(2**26)
    yield opened
    opened.close()


def swappable(graph: StepGraph, profile: Profile | None = None) -> StepProblem:
    """`graph` as a problem in which everything can be swapped."""
    known = estimate(graph) if profile is None else profile
    return problem_of(graph, replace(known, transfer=(TransferSample(2**20, 1.0, 1.0),)), lanes=LANES)


@pytest.mark.parametrize("name", often(always=["bert", "resnet"]))
def test_swapped_steps_of_the_zoo_train_as_eager_does(name: str, space: SwapSpace) -> None:
    case = ZOO[name]()
    ours = Trained(case.model, adam(case.model))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    step_problem = swappable(graph)
    order = random_swaps(step_problem, random.Random(0))
    simulate(step_problem.problem, order)
    rewritten = rewrite(graph, step_problem.actions, order)
    verify(graph, rewritten)
    assert rewritten.swaps
    assert_trains_as_eager(case, ours, theirs, rewritten, space=space)


@pytest.mark.parametrize("name", often(["convnet", "encoder", "bert", "resnet"], 1))
def test_the_measured_peak_is_the_predicted_one_with_swaps_in_flight(name: str, space: SwapSpace) -> None:
    case = tiled(ZOO[name](), 16)
    optimizer = torch.optim.Adam(case.model.parameters(), fused=True)
    graph = lowtide.capture(case.model, optimizer, case.batch, case.loss)
    profile = lowtide.profile(graph, runs=1)
    step_problem = swappable(graph, profile)
    meter, clock = meter_for(graph.device), clock_for(graph.device)
    tensors = graph.form.tensors(case.batch)
    eager_step(Trained(case.model, optimizer), case.batch, case.loss, 0)  # the optimizer has its state from here on
    optimizer.zero_grad()
    for seed in range(3):
        order = random_swaps(step_problem, random.Random(seed), share=0.7)
        rewritten = rewrite(graph, step_problem.actions, order)
        with no_collection():
            meter.start()
            clock.start()
            rewritten.run(tensors, Ledger(optimizer, space=space))
            clock.stop()
            taken = meter.stop().peak
        predicted = simulate(*with_states(step_problem, order)).peak
        assert profile.resident_B + taken <= predicted
        assert profile.resident_B + taken == pytest.approx(predicted, rel=0.01)


def swapped_step(name: str = "convnet") -> tuple[StepGraph, StepGraph]:
    """A captured step and the same with swaps."""
    case = ZOO[name]()
    graph = lowtide.capture(case.model, adam(case.model), case.batch, case.loss)
    step_problem = swappable(graph)
    return graph, rewrite(graph, step_problem.actions, random_swaps(step_problem, random.Random(1), share=0.8))


@pytest.mark.parametrize(
    ("purpose", "words"),
    [
        (Purpose.RELEASE, "while it is being copied out"),
        (Purpose.ARRIVE, "which is still on its way back"),
        (Purpose.PREFETCH, "which is not there"),
    ],
)
def test_the_verifier_notices_a_part_of_a_swap_that_is_missing(purpose: Purpose, words: str) -> None:
    graph, step = swapped_step()
    verify(graph, step)
    missing = next(op for op in step.ops if op.purpose is purpose)
    ops = [op for op in step.ops if op is not missing]
    broken = replace(step, ops=tuple(replace(op, rank=rank) for rank, op in enumerate(ops)))
    with pytest.raises(RewriteError, match=words):
        verify(graph, broken)


def test_the_verifier_notices_a_value_that_is_overwritten_while_it_leaves() -> None:
    graph, step = swapped_step()
    sent = next(op for op in step.ops if op.purpose is Purpose.OFFLOAD)
    after = next(op for op in step.ops[sent.rank :] if op.purpose is Purpose.PROGRAM and not op.is_view)
    ops = list(step.ops)
    ops[after.rank] = replace(after, overwrites=sent.reads[0])
    with pytest.raises(RewriteError, match="overwrites bytes that are being copied out"):
        verify(graph, replace(step, ops=tuple(ops)))


def test_the_listing_says_what_leaves_and_what_comes_back() -> None:
    _, step = swapped_step()
    text = str(step)
    for words in ("forward, offload", "offload(", "release(", "prefetch(", "arrive("):
        assert words in text
