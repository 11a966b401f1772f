"""Ruin and recreate as stages of the search: towards a first plan, from the best one, anew, and along the spine.

Walks know plain problems only: packing is decided by the best order, taken out, and put back (`Incumbent.plain`).
"""

from typing import TYPE_CHECKING

from lowtide.planning.optimal.decision import build
from lowtide.planning.optimal.incumbent import Incumbent, Plain
from lowtide.planning.optimal.lifetimes import live_bytes
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.simulate import time_of

if TYPE_CHECKING:
    from lowtide.planning.optimal.regrow.regrowth import Regrowth


def _walks(view: ProgramView, budget: int) -> "Regrowth":
    """Compiled code is loaded only where it is used."""
    from lowtide.planning.optimal.regrow.regrowth import Regrowth

    return Regrowth(view, budget)


def towards_a_first_plan(best: Incumbent) -> None:
    """Walks from the program and from the order with the least peak, until one of them fits."""
    seconds = min(SETTINGS.walk_first * best.whole, best.left())
    plain = best.plain()
    if plain is None:
        return
    walks = _walks(plain.view, best.budget)
    for share, style in SETTINGS.first:
        if best.left() <= 0:
            return
        least = best.walks % SETTINGS.from_least == SETTINGS.from_least - 1
        least = least and len(best.floor_order) < SETTINGS.long * best.view.count
        start = plain.stripped(best.floor_order) if least else plain.view.problem.program
        fitting, last = walks.grow(start, style, seconds=share * seconds, seed=best.walk_seed())
        if best.offer(plain.back(fitting or last)):
            return


def walked_within(best: Incumbent, budget: int) -> list[int] | None:
    """An order within another budget, by one short walk from the program that packs all it can; None where it fails."""
    plain = Plain(best.view, frozenset(best.view.pairs))
    seconds = min(SETTINGS.floor_walk * best.whole, best.left())
    _, style = SETTINGS.first[0]
    start = plain.view.problem.program
    found, _ = _walks(plain.view, budget).grow(start, style, seconds=seconds, seed=best.walk_seed())
    order = plain.back(found) if found else None
    return order if order is not None and int(live_bytes(best.view.problem, order).max()) <= budget else None


def walk(best: Incumbent, *, anew: bool = False) -> None:
    """Ruin and recreate for a part of the work, from the best order or anew from the program."""
    seconds = min(SETTINGS.walk * best.whole, best.left())
    if best.closed or seconds <= 0:
        return
    if best.order is None or best.is_long:
        towards_a_first_plan(best)
        return
    plain = best.plain()
    if plain is None:
        return
    styles = SETTINGS.anew if anew else SETTINGS.onward
    style = styles[best.walks % len(styles)]
    start = plain.view.problem.program if anew else plain.stripped(best.order)
    found, _ = _walks(plain.view, best.budget).grow(start, style, seconds=seconds, seed=best.walk_seed())
    if found:
        best.offer(plain.back(found))


def onward(best: Incumbent) -> None:
    """From the best order, two ways."""
    for _ in range(2):
        walk(best)


def walks_anew(best: Incumbent) -> None:
    """Where a walk begins matters, and a hot one forgets it: twice from the program, then from the best."""
    for anew in (True, True, False):
        walk(best, anew=anew)


def along_the_spine(best: Incumbent) -> None:
    """The bound along the spine; what it stores, repaired, then ruin and recreate from there where the gap is wide.

    Repaired it may be slower than the best order, but of another build: walks from there come to what they do not
    reach from the best.
    """
    from lowtide.planning.optimal.spine.bound import SpineBound

    best.spine = spine = SpineBound(best.view.plain, best.budget, best.top, left=best.left)
    coarse = spine.at(SETTINGS.cells[0])
    if coarse is None:
        return
    best.raise_bound(coarse.least)
    plain = best.plain()
    if plain is None or not best.far:
        return
    found: list[list[int]] = []
    for percent in SETTINGS.spine_percents:
        chain = coarse if percent == 100 else spine.at(SETTINGS.cells[0], percent)
        decision = spine.decision(chain) if chain else None
        order = build(plain.view, decision) if decision else None
        fitted = best.fitted(order, plain.view) if order else None
        if fitted:
            found.append(fitted)
    if not found:
        return
    start = min(found, key=lambda order: time_of(plain.view.problem, order))
    best.offer(plain.back(start))
    seconds = min(SETTINGS.walk * best.whole, best.left())
    grown, _ = _walks(plain.view, best.budget).grow(start, SETTINGS.onward[0], seconds=seconds, seed=best.seed)
    best.offer(plain.back(grown or start))


def finer_spine(best: Incumbent) -> None:
    """The bound along the spine in finer cells, as long as they take a small part of the work left."""
    for cells in SETTINGS.cells[1:]:
        before = best.left()
        chain = best.spine.at(cells) if best.spine else None
        if chain is None or chain.least < SETTINGS.cells_near * best.bound:
            return
        best.raise_bound(chain.least)
        if SETTINGS.cells_left * (before - best.left()) > best.left():
            return
