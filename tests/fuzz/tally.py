"""The count per outcome, per refusal and per finding of many programs, as a record for docs/limits.md."""

from collections import Counter
from typing import Any

import torch

from tests.fuzz.judge import FINE, Outcome
from tests.fuzz.kinds import KINDS
from tests.fuzz.program import Program
from tests.fuzz.shrink import cause, said
from tests.fuzz.workers import Result


class Tally:
    """Is told every result."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.layers: Counter[str] = Counter()
        self.findings: dict[str, list[Result]] = {}

    def add(self, result: Result) -> str | None:
        """Count one result; returns a line about it if it is a finding."""
        outcome = Outcome(result["name"], result["detail"])
        self.outcomes[outcome.name] += 1
        if result["program"] is None:
            return None
        program = Program.from_json(result["program"])
        self.layers.update(layer.kind for layer in program.layers)
        if outcome.name == "refused":
            self.refusals[said(outcome)] += 1
        if not outcome.is_finding:
            return None
        self.findings.setdefault(cause(outcome, program), []).append(result)
        return f"seed {result['seed']}: {outcome.name} {outcome.detail.splitlines()[0][:200]}"

    def __str__(self) -> str:
        return ", ".join(f"{number} {name}" for name, number in self.outcomes.most_common())

    def record(self, first_seed: int) -> dict[str, Any]:
        """What is written to out/fuzz.json."""
        others = sorted(self.outcomes.keys() - {*FINE})
        return {
            "programs": self.outcomes.total(),
            "first_seed": first_seed,
            "torch": torch.__version__,
            "kinds": {"known": len(KINDS), "used": len(self.layers)},
            "outcomes": {name: self.outcomes[name] for name in (*FINE, *others)},
            "refusals": dict(self.refusals.most_common()),
            "findings": {name: [result["seed"] for result in results] for name, results in self.findings.items()},
        }
