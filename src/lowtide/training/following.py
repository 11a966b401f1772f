"""The decisions of a plan taken over for a step of the same ops in another shape."""

from lowtide.graph.step_graph import StepGraph
from lowtide.profiling.problem import StepProblem
from lowtide.records.step_plan import Act, StepPlan


def are_alike(one: StepGraph, other: StepGraph) -> bool:
    """Do both run the same ops on the same storages, whatever their shapes? Then ranks and storages correspond."""
    return len(one.ops) == len(other.ops) and all(
        (a.name, a.op, a.reads, a.writes, a.makes) == (b.name, b.op, b.reads, b.writes, b.makes)
        for a, b in zip(one.ops, other.ops, strict=True)
    )


def followed(plan: StepPlan, step: StepProblem) -> tuple[int, ...] | None:
    """The order of `plan` in `step`, whose graph is like the plan's; None where it uses what `step` does not have.

    Parameters may be grouped differently there: each group moves right behind the op that it stands behind. What goes
    on beside compute is decided anew: a collective of the program stands where the program has it, and one that runs
    again where it was waited for.
    """
    place = {(a.act, a.ranks, a.storage): o for o, a in enumerate(step.actions) if a.act is not Act.UPDATE}
    program = list(step.problem.program)
    waited = {place.get((Act.RUN, a.ranks, a.storage)) for a in plan.actions if a.act is Act.WAIT}
    free = {o for o in program if o in waited or step.actions[o].act is Act.UPDATE}
    order: list[int] = []
    seen: set[int] = set()
    done = 0

    def go_on() -> None:
        """What stands next in the program and has no place in the plan."""
        nonlocal done
        while done < len(program) and program[done] in free:
            order.append(program[done])
            done += 1

    go_on()
    for o in plan.order:
        action = plan.actions[o]
        if action.act in (Act.UPDATE, Act.START, Act.BESIDE):
            continue
        act = Act.RUN if action.act is Act.WAIT else action.act
        found = place.get((act, action.ranks, action.storage))
        if found is None:
            return None
        if found in free and found not in seen:
            seen.add(found)
            continue
        order.append(found)
        if done < len(program) and found == program[done]:
            done += 1
            go_on()
    return tuple(order)
