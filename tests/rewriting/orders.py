"""Random orders of a step's ops that can run: recomputation, packing and unpacking at any place."""

import random

from lowtide.graph.step_graph import StepGraph
from lowtide.planning.swaps import swaps_of
from lowtide.profiling.problem import StepProblem, without_idle_runs
from lowtide.records.step_plan import Act
from lowtide.records.vocabulary import Phase


def random_order(step_problem: StepProblem, rng: random.Random, *, share: float = 0.2) -> tuple[int, ...]:
    """The program with extra runs put in wherever they are allowed and read, about `share` as many as there are ops."""
    ops, order = step_problem.problem.ops, []
    again: list[int] = []
    packable: list[int] = []
    unpackable: list[int] = []
    optional = [o for o, op in enumerate(ops) if op.optional]
    for o in step_problem.problem.program:
        order.append(o)
        if not ops[o].once:
            again.append(o)
        made = set(ops[o].writes)
        packable += [p for p in optional if step_problem.actions[p].act is Act.PACK and made & set(ops[p].reads)]
        while rng.random() < share:
            kind = rng.choice((again, again, packable, unpackable))
            if kind:
                chosen = rng.choice(kind)
                order.append(chosen)
                if step_problem.actions[chosen].act is Act.PACK:
                    unpackable += [p for p in optional if set(ops[p].reads) & set(ops[chosen].writes)]
    return without_idle_runs(step_problem.problem, order)


def everything_again(graph: StepGraph, step_problem: StepProblem) -> tuple[int, ...]:
    """The whole forward runs a second time before backward begins, as far as it may."""
    program = step_problem.problem.program
    begin = next(
        k for k, o in enumerate(program) if graph.ops[step_problem.actions[o].ranks[0]].phase is Phase.BACKWARD
    )
    again = [o for o in program[:begin] if not step_problem.problem.ops[o].once]
    return without_idle_runs(step_problem.problem, [*program[:begin], *again, *program[begin:]])


def random_swaps(step_problem: StepProblem, rng: random.Random, *, share: float = 0.5) -> tuple[int, ...]:
    """The program with some values sent away as soon as they are made, released and brought back anywhere behind."""
    problem = step_problem.problem
    order = list(problem.program)
    for swap in swaps_of(problem).values():
        maker = order.index(next(o for o in problem.producers[swap.storage] if not problem.ops[o].optional))
        reads = [k for k, o in enumerate(order) if swap.storage in problem.reads[o]]
        if rng.random() < share and reads and reads[-1] > maker + 1:
            back = rng.randint(maker + 1, reads[-1])
            order.insert(back, swap.prefetch)
            order.insert(rng.randint(maker + 1, back), swap.release)
            order.insert(maker + 1, swap.offload)
    return without_idle_runs(problem, order)
