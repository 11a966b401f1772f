"""`keep_all`: the program as it is, nothing recomputed."""

import time

from lowtide.planning.policies import Plan, Progress, judged, quiet
from lowtide.planning.problem import Problem


def plan(problem: Problem, budget: int, *, time_limit: float = 60.0, seed: int = 0, progress: Progress = quiet) -> Plan:
    """The program order, where it fits."""
    start = time.perf_counter()
    progress("simulating the program order")
    return judged(problem, problem.program, budget, policy="keep_all", seconds=time.perf_counter() - start)
