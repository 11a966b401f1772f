"""Ruin and recreate as the search sees it: an order in, the best that came of it out, the work charged."""

import math
from collections.abc import Sequence

import numpy as np

from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.regrow.anneal import Best, walk
from lowtide.planning.optimal.regrow.tables import LENGTH, Ints, order_of, scratch_for, tables_of
from lowtide.planning.optimal.settings import SETTINGS, WalkStyle
from lowtide.planning.optimal.work import allowance, charge


class Regrowth:
    """A problem and a budget, ready to walk from any order."""

    def __init__(self, view: ProgramView, budget: int) -> None:
        self.view, self.room = view, budget - view.problem.resident_bytes
        self.tables = tables_of(view)

    def grow(self, order: Sequence[int], style: WalkStyle, *, seconds: float, seed: int) -> tuple[list[int], list[int]]:
        """Walk from an order for so much work: the fastest order within the budget that it met, and the last of all.

        The first is empty where there is none; the last may be over the budget.
        """
        if not self.tables.droppable.size:
            return [], list(order)
        state = order_of(self.view, order, style.most)
        size = state.ops.size
        best = Best(np.zeros(size, np.int64), np.zeros(1, np.int64), np.full(1, math.inf), np.zeros(2))
        time = self.view.problem.base_time or 1.0
        heat = time / self.view.count
        weight = style.weight * time / max(1, self.room)
        timed = style._replace(hot=style.hot * heat, cold=style.cold * heat, weight=weight)
        scratch = scratch_for(self.view, style.most)
        done = 0.0
        while done < seconds and not allowance().meter.late():
            until = min(done + SETTINGS.walk_part, seconds)
            part = seed + round(done / SETTINGS.walk_part)
            walk(self.tables, state, best, timed, self.room, scratch, part, until, seconds)
            charge(float(state.work[0]) - done)
            done = float(state.work[0])
        return self._ops(best.ops, best.length[0]), self._ops(state.ops, state.state[LENGTH])

    def _ops(self, positions: Ints, length: int) -> list[int]:
        """Ops of the problem, without the one at the end that stands for what is kept."""
        program = self.view.problem.program
        return [program[k] for k in positions[: max(0, length - 1)].tolist()]
