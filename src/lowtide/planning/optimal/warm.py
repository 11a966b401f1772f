"""Compile what the search runs compiled, so that no plan has to wait for it: part of the set-up.

`python -m lowtide.planning.optimal.warm`. Without it the first plan on a machine takes some ten seconds longer.
"""

import math

import numpy as np

from lowtide.planning.addresses.blocks import Blocks
from lowtide.planning.addresses.place import place
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.regrow.regrowth import Regrowth
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.spine.bound import SpineBound
from lowtide.planning.synthetic import repeated_blocks


def warm() -> None:
    """One short walk, one bound and one placement; the compiled code is kept on disk."""
    problem = repeated_blocks(4)
    view = ProgramView(problem)
    budget = (problem.resident_bytes + int(view.live.max())) // 2
    Regrowth(view, budget).grow(problem.program, SETTINGS.onward[0], seconds=0.01, seed=0)
    SpineBound(view, budget, int(view.live.argmax()), left=lambda: math.inf).at(SETTINGS.cells[0])
    begin, length, size = np.random.default_rng(0).integers(1, 100, (3, 200))
    place(Blocks(begin, begin + length, 64 * size))


if __name__ == "__main__":
    warm()
