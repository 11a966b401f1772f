"""`python -m tests.fuzz`: many random programs, the count per outcome, and the findings made small."""

import argparse
import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch

from tests.fuzz.build import listing
from tests.fuzz.judge import Outcome, generate, judge
from tests.fuzz.program import Program
from tests.fuzz.shrink import shrink
from tests.fuzz.tally import Tally
from tests.fuzz.workers import Result, run_all


def main() -> int:
    """Run what the arguments say; 1 if there was a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first; the others follow")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=120.0, help="the longest that one program may take")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz.json"), help="where the counts are written")
    parser.add_argument("--replay", help="one program as JSON, or its seed, in this process")
    parser.add_argument("--no-shrink", action="store_true", help="leave findings as large as they are")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    if given.worker:
        return _work()
    if given.replay is not None:
        return _replay(given.replay, shrinks=not given.no_shrink)
    return _fuzz(given)


def _work() -> int:
    """Answer each seed on stdin with one line; whatever a program prints goes to stderr."""
    answers: TextIO = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        program = generate(int(line), strict=True)
        answers.write(program.to_json() + "\n")
        answers.flush()
        result = {"seed": program.seed, "program": program.to_json(), **asdict(judge(program))}
        answers.write(json.dumps(result) + "\n")
        answers.flush()
    return 0


def _replay(text: str, *, shrinks: bool) -> int:
    program = generate(int(text)) if text.isdigit() else Program.from_json(text)
    outcome = judge(program)
    if outcome.is_finding and shrinks:
        program, outcome = shrink(program, outcome)
    _say(f"{outcome.name} {outcome.detail}\n{listing(program)}\n{program.to_json()}")
    return int(outcome.is_finding)


def _fuzz(given: Any) -> int:
    tally = Tally()

    def told(result: Result) -> None:
        line = tally.add(result)
        if line is not None:
            _say(line)
        done = tally.outcomes.total()
        if done % 20 == 0 or done == given.count:
            _say(f"{done} of {given.count}: {tally}")

    run_all(range(given.seed, given.seed + given.count), given.jobs, given.seconds, told)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(tally.record(given.seed), indent=2) + "\n")
    for name, results in tally.findings.items():
        _say(f"\n{len(results)} x {name}\nseeds {[result['seed'] for result in results]}\n{_smallest(given, results)}")
    _say(f"\n{tally}; written to {given.out}")
    return int(bool(tally.findings))


def _smallest(given: Any, results: list[Result]) -> str:
    """The first of the findings, made small in this process, unless that would end it."""
    first = results[0]
    program, outcome = Program.from_json(first["program"]), Outcome(first["name"], first["detail"])
    if not given.no_shrink and outcome.name != "killed":
        program, outcome = shrink(program, outcome)
    return f"{outcome.detail}\n{listing(program)}\n{program.to_json()}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
