"""A rewritten step trains as eager does, whatever the order, and takes the bytes that were predicted."""

import random
from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

import lowtide
from lowtide.device.clock import clock_for
from lowtide.device.meter import meter_for
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels.swap import Space
from lowtide.planning.policies import BudgetInfeasible, policy
from lowtide.planning.simulate import simulate
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import StepProblem, problem_of, with_states
from lowtide.profiling.runs import run_plain
from lowtide.records.vocabulary import Purpose
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from tests.equality import Trained, differences, eager_step
from tests.rewriting.orders import everything_again, random_order
from tests.zoo import ZOO, Case, often

MANY = ("convnet", "encoder", "lstm", "gru", "autocast_convnet", "homemade", "branches", "t5")


def assert_trains_as_eager(
    case: Case, ours: Trained, theirs: Trained, step: StepGraph, steps: int = 2, space: Space | None = None
) -> None:
    """Side by side, the second step on a batch that was not captured."""
    for number in range(steps):
        batch = case.other if number % 2 else case.batch
        torch.manual_seed(number)
        ours.loss = step(batch, keep_gradients=True, space=space)
        generator = torch.get_rng_state()
        assert torch.equal(generator, eager_step(theirs, batch, case.loss, number)), "the generator ended elsewhere"
        assert list(differences(ours, theirs)) == [], f"step {number}"


def adam(model: nn.Module) -> Optimizer:
    """The usual optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


@pytest.mark.parametrize("name", often(always=["bert"]))
def test_any_order_of_the_zoo_trains_as_eager_does(name: str) -> None:
    case = ZOO[name]()
    ours = Trained(case.model, adam(case.model))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    step_problem = problem_of(graph, estimate(graph))
    for seed in range(2):
        order = random_order(step_problem, random.Random(seed), share=0.4)
        rewritten = rewrite(graph, step_problem.actions, order)
        verify(graph, rewritten)
        assert len(rewritten.ops) > len(graph.ops)
        assert_trains_as_eager(case, ours, theirs, rewritten)


@cache
def _captured(name: str) -> tuple[Case, StepGraph, StepProblem]:
    torch.manual_seed(0)
    case = ZOO[name]()
    graph = lowtide.capture(case.model, adam(case.model), case.batch, case.loss)
    return case, graph, problem_of(graph, estimate(graph))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(MANY), st.integers(0, 10**6), st.floats(0.05, 0.7))
def test_every_order_that_can_run_passes_the_verifier(name: str, seed: int, share: float) -> None:
    _, graph, step_problem = _captured(name)
    order = random_order(step_problem, random.Random(seed), share=share)
    simulate(step_problem.problem, order)
    rewritten = rewrite(graph, step_problem.actions, order)
    verify(graph, rewritten)
    names = [op.name for op in rewritten.ops]
    assert len(set(names)) == len(names)
    assert {op.name for op in graph.ops if not op.is_view} <= {op.captured_name for op in rewritten.ops}


def tiled(case: Case, times: int) -> Case:
    """The same with a larger batch, so that activations are what memory goes to."""

    def larger(x: Tensor) -> Tensor:
        return x.repeat(times, *[1] * (x.dim() - 1))

    batch, other = (torch.utils._pytree.tree_map(larger, x) for x in (case.batch, case.other))
    return Case(case.model, batch, other, case.loss)


@pytest.mark.parametrize(
    "name", often(["convnet", "encoder", "bert", "gru", "lstm", "segformer", "autocast", "resnet"], ["convnet"])
)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "for-loop"])
def test_the_measured_peak_is_the_predicted_one(name: str, fused: bool) -> None:
    case = tiled(ZOO[name](), 16)
    optimizer = torch.optim.Adam(case.model.parameters(), fused=fused)
    graph = lowtide.capture(case.model, optimizer, case.batch, case.loss)
    profile = lowtide.profile(graph, runs=1)
    step_problem = problem_of(graph, profile)
    orders: list[tuple[int, ...]] = [
        step_problem.problem.program,
        random_order(step_problem, random.Random(0), share=0.1),
    ]
    for share in (0.9, 0.6, 0.4):
        budget = int(
            step_problem.problem.resident_bytes + share * (profile.peak_B - step_problem.problem.resident_bytes)
        )
        try:
            orders.append(policy("optimal").plan(step_problem.problem, budget, time_limit=1).schedule.ops)
        except BudgetInfeasible:
            break
    meter, clock = meter_for(graph.device), clock_for(graph.device)
    tensors = graph.form.tensors(case.batch)
    eager_step(Trained(case.model, optimizer), case.batch, case.loss, 0)  # the optimizer has its state from here on
    optimizer.zero_grad()
    for order in orders:
        rewritten = rewrite(graph, step_problem.actions, order)
        run = run_plain(rewritten, tensors, clock, meter)
        predicted = simulate(*with_states(step_problem, order)).peak
        assert profile.resident_B + run.peak <= predicted
        assert profile.resident_B + run.peak == pytest.approx(predicted, rel=0.01 if fused else 0.05)


def test_a_rewritten_step_says_what_is_recomputed_and_packed() -> None:
    _, graph, step_problem = _captured("convnet")
    packs = [o for o, op in enumerate(step_problem.problem.ops) if op.optional]
    order = list(everything_again(graph, step_problem))
    backward = next(
        k for k, o in enumerate(order) if step_problem.problem.ops[o].name.startswith("max_pool2d_with_indices_b")
    )
    order[backward:backward] = packs
    rewritten = rewrite(graph, step_problem.actions, order)
    verify(graph, rewritten)
    purposes = {op.purpose for op in rewritten.ops}
    assert {Purpose.PROGRAM, Purpose.RECOMPUTE, Purpose.PACK, Purpose.UNPACK, Purpose.STATE} <= purposes
    assert sum(op.is_effect for op in rewritten.ops) == sum(op.is_effect for op in graph.ops)
    assert sum(op.is_random for op in rewritten.ops) == sum(op.is_random for op in graph.ops)
    text = str(rewritten)
    assert "forward, pack" in text
    assert "forward, recompute" in text
    assert "replay_lowtide_draw_default(generator_before" in text


def test_updates_come_as_soon_as_the_gradient_is_complete_and_the_parameter_read() -> None:
    _, graph, step_problem = _captured("convnet")
    first_update = next(k for k, action in enumerate(step_problem.actions) if action.act == "update")
    last_backward = max(k for k, action in enumerate(step_problem.actions) if action.act == "run")
    assert first_update < last_backward
    for k, action in enumerate(step_problem.actions):
        if action.act == "update":
            moved = {s for rank in action.ranks for s in graph.ops[rank].writes}
            later = [
                step_problem.actions[o]
                for o in range(k + 1, len(step_problem.actions))
                if step_problem.actions[o].act == "run"
            ]
            assert all(moved.isdisjoint(graph.ops[a.ranks[0]].reads) for a in later)


class Side(nn.Module):
    """A value made from the first weight is read in backward after that weight's gradient is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        """Autograd works off the newest ops first, so what was made early comes last."""
        with torch.no_grad():
            target = self.first(x).tanh()
        side: Tensor = (target * self.scale).sum()
        main: Tensor = self.first(x).square().sum()
        return side + main


def test_a_parameter_waits_for_what_could_be_made_from_it_again() -> None:
    torch.manual_seed(0)
    model = Side()
    batch = torch.randn(4, 8)
    case = Case(model, batch, torch.randn(4, 8))
    ours = Trained(model, torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, batch)
    step_problem = problem_of(graph, estimate(graph))
    made = next(o for o, op in enumerate(step_problem.problem.ops) if op.name == "tanh")
    source = next(
        o for o, op in enumerate(step_problem.problem.ops) if set(op.writes) & set(step_problem.problem.ops[made].reads)
    )
    late = max(
        k
        for k, o in enumerate(step_problem.problem.program)
        if set(step_problem.problem.ops[made].writes) & set(step_problem.problem.reads[o])
    )
    order = list(step_problem.problem.program)
    order[late:late] = [source, made]
    for tried in (order, *(random_order(step_problem, random.Random(seed), share=0.5) for seed in range(5))):
        rewritten = rewrite(graph, step_problem.actions, tried)
        verify(graph, rewritten)
        assert_trains_as_eager(case, ours, theirs, rewritten)
