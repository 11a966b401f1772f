"""Collectives beside compute in the problem of a measured step: what they cost there, and what its ops stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lowtide.planning.flights import Flight, Overlapped, Part, overlapped
from lowtide.planning.problem import Problem
from lowtide.profiling.problem import StepProblem
from lowtide.records.step_plan import Act, Action

Links = Mapping[str, Flight]
"""By the name of a collective how its time divides; empty where there are no other ranks."""


def hidden(problem: Problem, links: Links) -> Problem:
    """`problem` as if nothing were ever waited for: collectives take what they take from compute, or all of their time
    where that is less. No schedule is faster than it is there."""
    ops = list(problem.ops)
    for o, op in enumerate(ops):
        if op.name in links:
            link = links[op.name]
            ops[o] = replace(op, time=min(op.time, link.start + link.wait + link.drag))
    return replace(problem, ops=tuple(ops))


def beside(step: StepProblem, order: Sequence[int], links: Links, budget: int) -> tuple[StepProblem, tuple[int, ...]]:
    """`step` and `order` with the collectives beside compute, where that is faster and stays within `budget`."""
    flights = {o: links[op.name] for o, op in enumerate(step.problem.ops) if op.name in links}
    updates = [o for o, action in enumerate(step.actions) if action.act is Act.UPDATE]
    found = overlapped(step.problem, order, flights, updates, budget) if flights else None
    if found is None:
        return step, tuple(order)
    actions = tuple(_action(step, found, o) for o in range(len(found.steps)))
    random = frozenset(
        o for o, (part, ops) in enumerate(found.steps) if part is Part.WHOLE and not step.random.isdisjoint(ops)
    )
    return replace(step, problem=found.problem, actions=actions, random=random), found.order


def _action(step: StepProblem, found: Overlapped, o: int) -> Action:
    part, ops = found.steps[o]
    action = step.actions[ops[0]]
    if part is Part.WHOLE:
        return replace(action, ranks=tuple(rank for other in ops for rank in step.actions[other].ranks))
    starts = part is Part.START or (part is Part.FLIGHT and (Part.START, ops) not in found.steps)
    return replace(action, act=Act.START if starts else Act.WAIT if part is Part.WAIT else Act.BESIDE)
