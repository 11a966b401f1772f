"""What torch.compile makes of a step: ops that only move bytes, one after the other, become one kernel.

What one of them makes for another never gets bytes or time; the kernel takes as long as reading what comes from
outside and writing what is wanted outside. Products, attention, convolutions and collectives stay what they are, and
nothing is fused over the border of a block. That inductor also computes a little again in backward instead of keeping
it is not counted.
"""

from collections.abc import Iterator
from dataclasses import replace

from lowtide.errors import InputError, shown
from lowtide.fitting.sharding import ROOT, block_of
from lowtide.graph.step_graph import StepGraph
from lowtide.planning.problem import Op
from lowtide.profiling.estimate import Rates, kind_of
from lowtide.profiling.problem import StepProblem
from lowtide.records.step_plan import Act, Action

COMPILES = ("none", "blocks", "model")
_FUSED = {"elementwise and copies", "normalization", "softmax", "indexing"}


def check_compiled(compiled: str) -> None:
    """One that there is."""
    if compiled not in COMPILES:
        raise InputError(f"unknown compilation {shown(compiled)}: write one of {', '.join(COMPILES)}")


def fuse(step: StepProblem, graph: StepGraph, compiled: str, rates: Rates) -> StepProblem:
    """`step` as one whose `blocks` are compiled each by itself, as torchtitan does, or the whole `model`."""
    check_compiled(compiled)
    if compiled == "none":
        return step
    problem = step.problem
    inside: dict[int, int] = {}  # by storage: the last op of the program that reads it
    for o, op in enumerate(problem.ops):
        inside.update(dict.fromkeys(op.reads, o))
    ops: list[Op] = []
    actions: list[Action] = []
    random: set[int] = set()
    for group in _groups(step, graph, compiled):
        if not step.random.isdisjoint(group):
            random.add(len(ops))
        actions.append(step.actions[group[0]])
        ops.append(problem.ops[group[0]] if len(group) == 1 else _one(step, group, inside, rates))
    made = {s for op in ops for s in op.writes}
    storages = tuple(
        s if s.resident or n in made else replace(s, resident=True, bytes=0) for n, s in enumerate(problem.storages)
    )
    fused = replace(problem, storages=storages, ops=tuple(ops))
    fused.verify()
    return replace(step, problem=fused, actions=tuple(actions), random=frozenset(random))


def _groups(step: StepProblem, graph: StepGraph, compiled: str) -> Iterator[list[int]]:
    """Ops of the program that become one, in its order."""
    group: list[int] = []
    of: tuple[str, str] | None = None
    for o, action in enumerate(step.actions):
        mine = None
        if action.act is Act.RUN:
            op = graph.ops[action.ranks[0]]
            block = block_of(f"{op.module}.x")
            if kind_of(op.op) in _FUSED and (compiled == "model" or block != ROOT):
                mine = op.phase.value, block if compiled == "blocks" else ""
        if group and (mine is None or mine != of):
            yield group
            group = []
        group.append(o)
        of = mine
        if mine is None:
            yield group
            group = []
    if group:
        yield group


def _one(step: StepProblem, group: list[int], inside: dict[int, int], rates: Rates) -> Op:
    problem = step.problem
    members = set(group)
    ops = [problem.ops[o] for o in group]
    made = dict.fromkeys(s for op in ops for s in op.writes)
    reads = dict.fromkeys(s for op in ops for s in op.reads if s not in made)
    wanted = [
        s
        for s in made
        if problem.storages[s].keep or problem.storages[s].resident or (s in inside and inside[s] not in members)
    ]
    moved = sum(problem.sizes[s] for s in (*reads, *wanted))
    return Op(
        name=f"{ops[0].name} to {ops[-1].name}",
        time=min(sum(op.time for op in ops), rates.ms(moved, 0.0, "")),
        reads=tuple(reads),
        writes=tuple(wanted),
        workspace=max(op.workspace for op in ops),
        once=any(op.once for op in ops),
    )
