"""Planning in a process of its own: what it takes, solvers and compiled code among it, goes when it ends."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, TypeVar

from lowtide.errors import LowtideError
from lowtide.planning.policies import Plan, Policy, Progress, policy, quiet
from lowtide.planning.problem import Problem

LARGE = 2**26
"""Bytes of a step from which its planning is worth a process, and from which what it took is given back."""
DOING, RAISED, DONE = "doing", "raised", "done"

Result = TypeVar("Result")


class PlannerGone(LowtideError, RuntimeError):
    """The process ended without an answer; why it says on the standard error, if it could."""


def apart(function: Callable[..., Result], *arguments: Any, progress: Progress = quiet) -> Result:
    """`function(*arguments, progress)` in a process of its own. It is found there by its module and name."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            _send(process.stdin, (function, arguments))
            kind, answer = pickle.load(process.stdout)
            while kind == DOING:
                progress(answer)
                kind, answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError):
            raise PlannerGone(
                f"the process that plans ended with exit code {process.wait()} and without a plan: if the machine ran "
                "out of memory, give it more, or plan on another and pass plan="
            ) from None
        except BaseException:
            process.kill()
            raise
    if kind == RAISED:
        raise answer
    found: Result = answer
    return found


def planner(name: str, step_bytes: int) -> Policy:
    """The policy called `name` for a step that takes so many bytes."""
    return _Apart(name) if step_bytes >= LARGE else policy(name)


class _Apart:
    """A policy that works in a process of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def plan(
        self, problem: Problem, budget: int, *, time_limit: float = 60.0, seed: int = 0, progress: Progress = quiet
    ) -> Plan:
        """As the policy itself would."""
        return apart(_plan, self._name, problem, budget, time_limit, seed, progress=progress)


def _plan(name: str, problem: Problem, budget: int, time_limit: float, seed: int, progress: Progress) -> Plan:
    return policy(name).plan(problem, budget, time_limit=time_limit, seed=seed, progress=progress)


def _send(stream: IO[bytes], message: Any) -> None:
    pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def main() -> None:
    """What the process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a solver prints is no answer
    function, arguments = pickle.load(sys.stdin.buffer)
    try:
        found = function(*arguments, lambda text: _send(answers, (DOING, text)))
    except LowtideError as error:
        _send(answers, (RAISED, error))
    else:
        _send(answers, (DONE, found))


if __name__ == "__main__":
    main()
