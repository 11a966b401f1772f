"""What one device runs, alone or as one of many: a planning problem, and what its parts are."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lowtide.graph.step_graph import StepGraph
from lowtide.planning.problem import Problem, Storage
from lowtide.profiling.problem import StepProblem
from lowtide.records.step_plan import Act
from lowtide.records.vocabulary import Phase, Role

SUMMED = "gradients so far"
"""Name of what holds them."""


@dataclass(frozen=True)
class Rank:
    """The problem of one device. Ops and storages by their number in the problem."""

    step: StepProblem
    backward: frozenset[int]
    """Ops of backward and update."""
    updates: frozenset[int]
    states: frozenset[int]
    """Storages of the optimizer's state: a fresh optimizer makes them in its first step."""
    gathers: frozenset[int] = frozenset()
    """Ops that gather the whole parameters of a block."""
    gathered: frozenset[int] = frozenset()
    """Storages that hold the whole parameters of a block."""
    pieces: frozenset[int] = frozenset()
    """Storages that hold the gradients of shards."""
    buffers: frozenset[int] = frozenset()
    """Residents that stand for buffers of collectives in flight."""
    parts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Storages that are several allocations, and the bytes of each."""

    @property
    def problem(self) -> Problem:
        """Of this device."""
        return self.step.problem

    def whole(self, gather: int) -> int:
        """Bytes that an op gathers."""
        return sum(self.problem.sizes[s] for s in self.problem.writes[gather])


def alone(step: StepProblem, graph: StepGraph) -> Rank:
    """One device that has all of it."""
    return Rank(step, backward_of(step, graph), updates_of(step), states_of(graph))


def backward_of(step: StepProblem, graph: StepGraph) -> frozenset[int]:
    """Ops of the problem that are not forward's."""
    return frozenset(
        o
        for o, action in enumerate(step.actions)
        if action.ranks and graph.ops[action.ranks[0]].phase is not Phase.FORWARD
    )


def updates_of(step: StepProblem) -> frozenset[int]:
    """Ops of the problem that move parameters."""
    return frozenset(o for o, action in enumerate(step.actions) if action.act is Act.UPDATE)


def states_of(graph: StepGraph) -> frozenset[int]:
    """Storages of the optimizer's state."""
    return frozenset(s for s, storage in enumerate(graph.storages) if storage.role is Role.OPTIMIZER_STATE)


def accumulating(rank: Rank, graph: StepGraph, batches: int) -> Rank:
    """`rank` where gradients stay, are added to, and move parameters once in `batches`."""
    problem = rank.problem
    gradients = {s for s, storage in enumerate(graph.storages) if storage.role is Role.GRADIENT} | rank.pieces
    summed = {s for o in rank.updates for s in problem.reads[o] if s in gradients}
    size = sum(problem.sizes[s] for s in summed)
    ops = tuple(
        replace(op, reads=tuple(s for s in op.reads if s not in summed), time=op.time / batches)
        if o in rank.updates
        else op
        for o, op in enumerate(problem.ops)
    )
    number = len(problem.storages)
    storages = (*problem.storages, Storage(size, resident=True, name=SUMMED))
    changed = replace(rank.step, problem=replace(problem, storages=storages, ops=ops))
    parts = {**rank.parts, number: tuple(problem.sizes[s] for s in sorted(summed))}
    return replace(rank, step=changed, parts=parts)
