"""Compile what the search runs compiled, so that no plan has to wait for it: part of the set-up.

`python -m lowtide.planning.optimal.warm`. Without it the first plan on a machine takes some ten seconds longer.
"""

import math

from lowtide.planning.optimal.facts import Facts
from lowtide.planning.optimal.regrow.regrowth import Regrowth
from lowtide.planning.optimal.regrow.taste import Taste
from lowtide.planning.optimal.spine.bound import spine_bound
from lowtide.planning.synthetic import repeated_blocks


def warm() -> None:
    """One short walk and one bound; the compiled code is kept on disk."""
    problem = repeated_blocks(4)
    facts = Facts(problem)
    budget = (problem.resident_bytes + int(facts.live.max())) // 2
    Regrowth(facts, budget).grow(problem.program, Taste(hot=1.0, cold=0.01), seconds=0.01, seed=0)
    spine_bound(facts, budget, int(facts.live.argmax()), known=0.0, left=lambda: math.inf)


if __name__ == "__main__":
    warm()
