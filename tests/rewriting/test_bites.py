"""The equality tests and the verifier notice when something is broken on purpose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import lowtide
from lowtide.errors import RewriteError
from lowtide.graph.step_graph import StepGraph
from lowtide.kernels import effects, replay
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import StepProblem, problem_of
from lowtide.records.vocabulary import Purpose
from lowtide.rewriting import rewrite as rewriting
from lowtide.rewriting.verify import verify
from tests.equality import Trained
from tests.rewriting.orders import everything_again
from tests.rewriting.test_rewrite import assert_trains_as_eager
from tests.zoo import ZOO, Case


def setting(name: str) -> tuple[Case, Trained, Trained, StepGraph, StepProblem]:
    """A captured model and its eager twin."""
    torch.manual_seed(0)
    case = ZOO[name]()
    ours = Trained(case.model, torch.optim.SGD(case.model.parameters(), lr=0.1))
    theirs = ours.copy()
    graph = lowtide.capture(ours.model, ours.optimizer, case.batch, case.loss)
    return case, ours, theirs, graph, problem_of(graph, estimate(graph))


def test_replay_without_the_state_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case, ours, theirs, graph, step_problem = setting("encoder")

    def forgetful(op: Any, device: Any) -> Any:
        def replay(state: Any, *args: Any, **kwargs: Any) -> Any:
            return op(*args, **kwargs)

        return replay

    monkeypatch.setattr(rewriting, "replay_form", forgetful)
    step = rewriting.rewrite(graph, step_problem.actions, everything_again(graph, step_problem))
    with pytest.raises(AssertionError):
        assert_trains_as_eager(case, ours, theirs, step)
    with pytest.raises(RewriteError, match="does not replay"):
        verify(graph, step)


def test_statistics_that_move_twice_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case, ours, theirs, graph, step_problem = setting("convnet")
    monkeypatch.setattr(rewriting, "repeated_arguments", lambda op, args, kwargs: (args, kwargs))
    step = rewriting.rewrite(graph, step_problem.actions, everything_again(graph, step_problem))
    with pytest.raises(AssertionError):
        assert_trains_as_eager(case, ours, theirs, step)
    with pytest.raises(RewriteError, match="reads other values"):
        verify(graph, step)


def test_a_recomputed_input_that_is_wrong_is_noticed() -> None:
    case, ours, theirs, graph, step_problem = setting("mlp")
    step = rewriting.rewrite(graph, step_problem.actions, everything_again(graph, step_problem))
    broken = next(op for op in step.ops if op.purpose is Purpose.RECOMPUTE and op.captured_name.startswith("addmm"))
    bias, *rest = broken.node.args
    other = next(n for n in step.graph.nodes if n.op == "placeholder" and n.name != bias.name)  # type: ignore[union-attr]
    values = [n for n in step.graph.nodes if n.op == "placeholder" and n.meta["val"].shape == bias.meta["val"].shape]  # type: ignore[union-attr]
    broken.node.args = (next((n for n in values if n is not bias), other), *rest)
    with pytest.raises(RewriteError, match="reads other values"):
        verify(graph, step)
    with pytest.raises(AssertionError):
        assert_trains_as_eager(case, ours, theirs, step)


def _swap(step: StepGraph, first: Callable[[Any], bool], second: Callable[[Any], bool]) -> StepGraph:
    """The step with two ops in each other's place."""
    ops = list(step.ops)
    a = next(k for k, op in enumerate(ops) if first(op))
    b = next(k for k in range(len(ops) - 1, -1, -1) if second(ops[k]))
    ops[a], ops[b] = replace(ops[b], rank=a), replace(ops[a], rank=b)
    return replace(step, ops=tuple(ops))


def test_an_update_before_the_last_read_of_its_parameter_is_noticed() -> None:
    *_, graph, step_problem = setting("mlp")
    step = rewriting.rewrite(graph, step_problem.actions, step_problem.problem.program)
    verify(graph, step)
    broken = _swap(step, lambda op: op.is_update, lambda op: op.captured_name.startswith("mm") and not op.is_view)
    with pytest.raises(RewriteError):
        verify(graph, broken)


def test_an_effect_that_is_left_out_is_noticed() -> None:
    *_, graph, step_problem = setting("convnet")
    step = rewriting.rewrite(graph, step_problem.actions, step_problem.problem.program)
    ops = [op for op in step.ops if not (op.is_effect and not op.is_update and not op.makes)]
    assert len(ops) < len(step.ops)
    renumbered = tuple(replace(op, rank=rank) for rank, op in enumerate(ops))
    with pytest.raises(RewriteError, match="once"):
        verify(graph, replace(step, ops=renumbered))


def test_reading_overwritten_bytes_is_noticed() -> None:
    *_, graph, step_problem = setting("convnet")
    step = rewriting.rewrite(graph, step_problem.actions, step_problem.problem.program)
    place = {made.name: made.storage for op in step.ops for made in op.outputs}
    relu = next(op for op in step.ops if op.captured_name.startswith("relu"))
    backward = next(op for op in step.ops if op.captured_name.startswith("convolution_backward"))
    read = next(n for n in backward.node.all_input_nodes if n.op != "placeholder" and n.name in place)
    ops = [replace(op, overwrites=place[read.name]) if op is relu else op for op in step.ops]
    with pytest.raises(RewriteError, match="overwritten"):
        verify(graph, replace(step, ops=tuple(ops)))


def test_batch_norm_without_statistics_computes_the_same() -> None:
    x, weight, mean = torch.randn(4, 3, 5, 5), torch.randn(3), torch.zeros(3)
    target = torch.ops.aten.native_batch_norm.default
    args = (x, weight, weight, mean, mean.clone(), True, 0.1, 1e-5)
    again, _ = effects.repeated_arguments(target, args, {})
    assert again[3:5] == (None, None)
    before = target(*args)
    moved = mean.clone()
    after = target(*again)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(mean, moved)


def test_replay_leaves_the_generator_alone_even_when_the_op_fails() -> None:
    state = replay.generator_state(torch.device("cpu"))
    first = torch.empty(100).bernoulli_(0.5)
    here = torch.get_rng_state()
    again = replay.replay_form(torch.ops.aten.bernoulli_.float, torch.device("cpu"))
    assert torch.equal(again(state, torch.empty(100), 0.5), first)
    assert torch.equal(torch.get_rng_state(), here)
    with pytest.raises(RuntimeError):
        again(state, torch.empty(100), 7.0)
    assert torch.equal(torch.get_rng_state(), here)
