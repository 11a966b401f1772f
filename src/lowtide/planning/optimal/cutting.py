"""The best prices for a few instants, then more instants where prices are high, and so on: a bound that grows."""

import sys
from collections.abc import Callable, Sequence

import highspy
import numpy as np

from lowtide.planning.optimal.eliminate import Table, TooWide
from lowtide.planning.optimal.incumbent import Incumbent
from lowtide.planning.optimal.prices import Priced, Prices
from lowtide.planning.optimal.program_view import ProgramView, bytes_since
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.work import charge


def bound_by_prices(best: Incumbent) -> None:
    """Several instants bound more than one, by prices of bytes."""
    view = best.view.plain
    price_bound(view, best.budget, best.top, price=best.price, left=best.left, found=best.raise_bound)


def price_bound(
    view: ProgramView, budget: int, top: int, *, price: float, left: Callable[[], float], found: Callable[[float], None]
) -> float:
    """A bound on extra time from `top` and ever more instants after it; 0 where ops touch each other too much."""
    needs = bytes_since(view, top)
    over = [k for k in range(top + 1, view.count) if view.live[k] > budget]
    parts = np.array_split(np.array(over, dtype=np.int64), min(SETTINGS.first_instants, len(over))) if over else []
    instants = [top, *(int(part[np.argmax(needs[part])]) for part in parts)]
    prices = np.full(len(instants), SETTINGS.price_first * price)
    prices[0] = price
    bound, took = 0.0, 0.0
    while left() > SETTINGS.price_left * took:
        before = left()
        try:
            model = Prices(view, budget, instants)
        except TooWide:
            break
        value, prices = best_prices(model, prices, late=lambda: left() <= 0)
        gained = value > (1 + SETTINGS.price_close) * bound
        if value > bound:
            bound = value
            found(bound)
        took = before - left()
        if not gained or len(instants) >= SETTINGS.most_instants:
            break
        instants, prices = _finer(instants, prices, needs)
    return bound


def _finer(instants: Sequence[int], prices: Table, needs: Table) -> tuple[list[int], Table]:
    """Without the instants that cost nothing, and with one more on either side of each that does."""
    total = float(prices.sum())
    kept = {
        t: float(p)
        for t, p in zip(instants, prices, strict=True)
        if p > SETTINGS.price_cheap * total or t == instants[0]
    }
    edges = [*sorted(kept), instants[-1] + 1]
    found = dict(kept)
    share, most = SETTINGS.price_new
    for j, t in enumerate(sorted(kept)):
        low = t + 1
        for high in ((t + edges[j + 1] + 1) // 2, edges[j + 1]):
            if high > low:
                new = low + int(np.argmax(needs[low:high]))
                found.setdefault(new, share * min(kept[t], most * total))
            low = high
    chosen = sorted(found)
    return chosen, np.array([found[t] for t in chosen])


def best_prices(
    model: Prices, start: Table, *, rounds: int = SETTINGS.price_rounds, late: Callable[[], bool] = lambda: False
) -> tuple[float, Table]:
    """Cutting planes within a box around the best prices so far, which grows and shrinks with success."""
    best = model.at(start)
    cuts, reach = [best], 1.0
    least = SETTINGS.price_least * float(start.sum()) / len(start)
    for _ in range(rounds):
        width = reach * np.maximum(best.prices, least)
        point, promised = _highest(cuts, np.maximum(0.0, best.prices - width), best.prices + width)
        if promised - best.bound <= SETTINGS.price_close * abs(best.bound):
            if reach >= 1.0:
                break
            reach = min(1.0, SETTINGS.reach_again * reach)
            continue
        if late():
            break
        cut = model.at(point)
        gain = (cut.bound - best.bound) / (promised - best.bound)
        if gain > SETTINGS.good:
            reach *= SETTINGS.reach_grows
        elif gain <= SETTINGS.fair:
            reach *= SETTINGS.reach_shrinks
        cuts.append(cut)
        best = cut if gain > 0 else best
    return best.bound, best.prices


def _highest(cuts: Sequence[Priced], low: Table, high: Table) -> tuple[Table, float]:
    """Where in a box the least of all cuts is highest, and how high."""
    count, infinite = len(low), highspy.kHighsInf
    unit = max(float(high.max()), sys.float_info.min)
    scale = max(max(abs(cut.bound) for cut in cuts), sys.float_info.min)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count + 1, len(cuts)
    lp.col_cost_ = np.array([0.0] * count + [-1.0])
    lp.col_lower_ = np.append(low / unit, -infinite)
    lp.col_upper_ = np.append(high / unit, infinite)
    lp.row_lower_ = np.full(len(cuts), -infinite)
    lp.row_upper_ = np.array([(cut.bound - float(cut.over @ cut.prices)) / scale for cut in cuts])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.arange(len(cuts) + 1, dtype=np.int32) * (count + 1)
    lp.a_matrix_.index_ = np.tile(np.arange(count + 1, dtype=np.int32), len(cuts))
    lp.a_matrix_.value_ = np.concatenate([np.append(-cut.over * unit / scale, 1.0) for cut in cuts])
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    iterations = max(0, solver.getInfo().simplex_iteration_count)
    entry, pivot = SETTINGS.charges.planes
    charge(SETTINGS.charges.solve + len(cuts) * count * (entry + pivot * iterations))
    values = np.array(solver.getSolution().col_value, dtype=float)
    return np.clip(values[:count] * unit, low, high), float(values[count]) * scale
