"""`python -m tests.fuzz`: many random programs, the count per outcome, and the findings made small."""

import argparse
import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

import torch

from tests.fuzz.build import listing
from tests.fuzz.judge import FINE, Outcome, generate, judge
from tests.fuzz.kinds import KINDS
from tests.fuzz.program import Program
from tests.fuzz.shrink import cause, shrink
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
        answers.write(json.dumps(run_seed(int(line))) + "\n")
        answers.flush()
    return 0


def run_seed(seed: int) -> Result:
    """What becomes of the program of `seed`."""
    program = generate(seed)
    outcome = judge(program)
    return {
        "seed": seed,
        "outcome": outcome.name,
        "detail": outcome.detail,
        "seconds": outcome.seconds,
        "program": program.to_json(),
    }


def _replay(text: str, *, shrinks: bool) -> int:
    program = generate(int(text)) if text.isdigit() else Program.from_json(text)
    outcome = judge(program)
    if outcome.is_finding and shrinks:
        program, outcome = shrink(program, outcome)
    _say(f"{outcome.name} {outcome.detail}\n{listing(program)}\n{program.to_json()}")
    return int(outcome.is_finding)


def _fuzz(given: Any) -> int:
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    findings: dict[str, list[Result]] = {}

    def told(result: Result) -> None:
        counts[result["outcome"]] += 1
        if result["program"] is not None:
            kinds.update(layer["kind"] for layer in json.loads(result["program"])["layers"])
        outcome = Outcome(result["outcome"], result["detail"])
        if outcome.name == "refused":
            refusals[cause(outcome)] += 1
        elif outcome.is_finding:
            _say(f"seed {result['seed']}: {outcome.name} {outcome.detail.partition(chr(10))[0][:200]}")
            program = None if result["program"] is None else Program.from_json(result["program"])
            findings.setdefault(f"{outcome.name}: {cause(outcome, program)}", []).append(result)
        done = counts.total()
        if done % 20 == 0 or done == given.count:
            _say(f"{done} of {given.count}: {dict(counts.most_common())}")

    run_all(range(given.seed, given.seed + given.count), given.jobs, given.seconds, told)
    for name, results in findings.items():
        _say(f"\n{len(results)} x {name}\nseeds {[result['seed'] for result in results]}\n{_smallest(given, results)}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "programs": given.count,
        "first_seed": given.seed,
        "torch": torch.__version__,
        "kinds": {"known": len(KINDS), "used": len(kinds)},
        "outcomes": {name: counts[name] for name in (*FINE, *sorted(counts.keys() - {*FINE}))},
        "refusals": dict(refusals.most_common()),
        "findings": {name: [result["seed"] for result in results] for name, results in findings.items()},
    }
    given.out.write_text(json.dumps(record, indent=2) + "\n")
    _say(f"\n{counts.total()} programs: {dict(counts.most_common())}; written to {given.out}")
    return int(bool(findings))


def _smallest(given: Any, results: list[Result]) -> str:
    """The first of the findings, made small in this process; one that killed its process is only named."""
    first = results[0]
    if first["program"] is None:
        return f"not run again here; python -m tests.fuzz --replay {first['seed']}"
    program, outcome = Program.from_json(first["program"]), Outcome(first["outcome"], first["detail"])
    if not given.no_shrink:
        program, outcome = shrink(program, outcome)
    return f"{outcome.detail}\n{listing(program)}\n{program.to_json()}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
