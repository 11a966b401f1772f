"""What belongs before the boundary between two halves stays before it, and what belongs behind it behind."""

import pytest
import torch
from torch import Tensor, nn

from lowtide.compiling.backend import backend
from lowtide.compiling.loop import loops
from lowtide.errors import RewriteError
from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.estimate import estimate
from lowtide.profiling.problem import StepProblem, problem_of
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify


class Sine(nn.Module):
    """Its backward takes a cosine, for which nothing from behind the boundary is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear(x).sin()
        return result


@pytest.fixture
def step() -> tuple[StepGraph, StepProblem]:
    torch._dynamo.reset()
    loops.clear()
    compiled = torch.compile(Sine(), backend=backend)
    compiled(torch.ones(2, 4))
    (loop,) = loops.values()
    (graph,) = loop.graphs()
    loops.clear()
    torch._dynamo.reset()
    return graph.captured, problem_of(graph.captured, estimate(graph.captured))


def place(graph: StepGraph, problem: StepProblem, op: str) -> int:
    """Where the op of that name stands in the program."""
    ranks = [problem.actions[o].ranks[0] for o in problem.problem.program]
    return next(k for k, rank in enumerate(ranks) if op in graph.ops[rank].op)


def test_the_program_passes(step: tuple[StepGraph, StepProblem]) -> None:
    graph, problem = step
    assert place(graph, problem, "sin") < place(graph, problem, "boundary") < place(graph, problem, "cos")
    verify(graph, rewrite(graph, problem.actions, problem.problem.program))


def test_backward_before_the_boundary_is_refused(step: tuple[StepGraph, StepProblem]) -> None:
    graph, problem = step
    order = list(problem.problem.program)
    order.insert(place(graph, problem, "boundary"), order.pop(place(graph, problem, "cos")))
    with pytest.raises(RewriteError, match="stands on the other side of the boundary"):
        verify(graph, rewrite(graph, problem.actions, order))


def test_a_boundary_that_is_passed_twice_is_refused(step: tuple[StepGraph, StepProblem]) -> None:
    graph, problem = step
    once = rewrite(graph, problem.actions, problem.problem.program)
    boundary = once.boundary
    assert boundary is not None
    object.__setattr__(once, "ops", (*once.ops[: boundary.rank], boundary, *once.ops[boundary.rank :]))
    with pytest.raises(RewriteError, match="boundary"):
        verify(graph, once)
