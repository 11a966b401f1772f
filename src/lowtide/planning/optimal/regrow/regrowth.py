"""Ruin and recreate (Schrimpf et al., 2000): take out a few runs near one another, make the order fit again, accept
what came of it by simulated annealing, undo it otherwise."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lowtide.planning.optimal.compiled import compiled, entry, sources
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.regrow.edits import begin
from lowtide.planning.optimal.regrow.recreate import FITS, FULL, recreate, take_out
from lowtide.planning.optimal.regrow.steps import copy, give_keys, mark, undo
from lowtide.planning.optimal.regrow.tables import (
    LENGTH,
    MOVED,
    Floats,
    Ints,
    Order,
    Scratch,
    Tables,
    order_of,
    scratch_for,
    tables_of,
)
from lowtide.planning.optimal.settings import SETTINGS, WalkStyle
from lowtide.planning.optimal.work import allowance, charge

# numba takes what is fixed from the module
DRAWS, FEW, NEAR = SETTINGS.ruin_draws, SETTINGS.ruin_runs, SETTINGS.ruin_widths
DROPS, MANY_DROPS = SETTINGS.drops, SETTINGS.drops_unfit
EARLY, EARLY_UNFIT = SETTINGS.early, SETTINGS.early_unfit
KEYS = SETTINGS.rekeyed


class Best(NamedTuple):
    """The best order within the room so far, and where the walk is."""

    ops: Ints
    length: Ints
    extra: Floats
    """Extra time of the best order; infinite while there is none."""
    now: Floats
    """Extra time and bytes in excess, summed over steps, of the order that the walk has come to."""


Walk = Callable[[Tables, Order, Best, WalkStyle, int, Scratch, int, float, float], None]


@compiled
def _ruin(tables: Tables, order: Order, count: int, width: int) -> float:
    """Take out up to `count` runs within `width` steps of each other; the time saved, negative where edits are full."""
    saved, centre = 0.0, -1
    for _ in range(count):
        for _ in range(DRAWS):
            step = np.random.randint(order.state[LENGTH])
            if centre >= 0:
                step = centre + np.random.randint(2 * width + 1) - width
            if step < 1 or step >= order.state[LENGTH] or order.runs[order.ops[step], 0] == order.keys[step]:
                continue
            freed = take_out(tables, order, step)
            if freed < 0:
                return -1.0
            saved += freed
            centre = step
            break
    return saved


@compiled
def _excess(order: Order, room: int) -> int:
    total = 0
    for step in range(order.state[LENGTH]):
        total += max(order.live[step] - room, 0)
    order.work[0] += MOVED * order.state[LENGTH]
    return total


@compiled
def _move(tables: Tables, order: Order, best: Best, style: WalkStyle, room: int, heat: float, scratch: Scratch) -> bool:
    """Ruin, recreate, and say whether to accept what came of it."""
    extra, excess = best.now
    count = FEW[np.random.randint(len(FEW))]
    saved = _ruin(tables, order, count, NEAR[np.random.randint(len(NEAR))])
    if saved < 0:
        return False
    pool, most = 1 + np.random.randint(style.pool), int(style.most ** np.random.random())
    fits = excess == 0
    drops, early = (DROPS + 2 * count, EARLY) if fits else (MANY_DROPS, EARLY_UNFIT)
    ended, added = recreate(tables, order, room, drops, pool, most, early, scratch)
    if ended == FULL or (ended != FITS and fits):
        return False
    after = extra - saved + added
    over = 0 if ended == FITS else _excess(order, room)
    worse = after - extra + style.weight * (over - excess)
    if (fits or over > 0) and worse > 0 and np.random.random() >= math.exp(-worse / heat):
        return False
    best.now[0], best.now[1] = after, over
    return True


@compiled
def _remember(order: Order, best: Best) -> None:
    """Keep the order where it is the best so far."""
    if best.now[1] == 0 and best.now[0] < best.extra[0]:
        copy(order.ops, best.ops, order.state[LENGTH])
        best.length[0] = order.state[LENGTH]
        best.extra[0] = best.now[0]


def _kept_with(digest: str) -> Walk:
    @entry
    def walk(
        tables: Tables,
        order: Order,
        best: Best,
        style: WalkStyle,
        room: int,
        scratch: Scratch,
        seed: int,
        until: float,
        whole: float,
    ) -> None:
        """Go on until the order's work is `until`; it cools down over the `whole`. Times are in the problem's unit."""
        assert digest  # what is kept on disk belongs to these sources
        np.random.seed(seed)
        if order.work[0] == 0:
            best.now[0] = begin(tables, order)
            best.now[1] = _excess(order, room)
            _remember(order, best)
        moves = 0
        while order.work[0] < until:
            heat = style.hot * (style.cold / style.hot) ** (order.work[0] / whole)
            mark(order)
            if _move(tables, order, best, style, room, heat, scratch):
                _remember(order, best)
            else:
                undo(order)
            moves += 1
            if moves % KEYS == 0:
                give_keys(order)
        give_keys(order)

    return walk


walk = _kept_with(sources(Path(__file__).parent))


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
