"""A simulator too simple to be wrong: at every step, look through the whole order for what must be alive."""

from collections.abc import Sequence

from lowtide.planning.problem import Problem


def runnable(problem: Problem, order: Sequence[int]) -> bool:
    """Whether the order obeys the rules, each checked on its own."""
    ops, storages = problem.ops, problem.storages
    if any(not 0 <= o < len(ops) for o in order):
        return False
    if any(ops[o].once and order.count(o) > 1 for o in order):
        return False
    firsts = [o for step, o in enumerate(order) if o not in order[:step] and not ops[o].optional]
    if firsts != [o for o, op in enumerate(ops) if not op.optional]:
        return False
    for step, o in enumerate(order):
        for s in ops[o].reads:
            if not storages[s].resident and not any(s in ops[earlier].writes for earlier in order[:step]):
                return False
    return True


def live(problem: Problem, order: Sequence[int]) -> list[int]:
    """Bytes at each step of an order that can run."""
    ops, result = problem.ops, []
    for step, o in enumerate(order):
        total = ops[o].workspace
        for s, storage in enumerate(problem.storages):
            if storage.resident or (not storage.off_device and _alive(problem, order, step, s)):
                total += storage.bytes
        reused = ops[o].reuses
        if reused is not None and not _later(problem, order, step, reused):
            total -= problem.storages[reused].bytes
        result.append(total)
    return result


def _alive(problem: Problem, order: Sequence[int], step: int, s: int) -> bool:
    """Written by now, and read now or later before it is written again, or kept."""
    ops = problem.ops
    if s in ops[order[step]].writes or s in ops[order[step]].reads:
        return True
    if not any(s in ops[o].writes for o in order[:step]):
        return False
    return _later(problem, order, step, s)


def _later(problem: Problem, order: Sequence[int], step: int, s: int) -> bool:
    """Read after the step before it is written again, or kept."""
    ops = problem.ops
    for o in order[step + 1 :]:
        if s in ops[o].reads:
            return True
        if s in ops[o].writes:
            return False
    return problem.storages[s].keep
