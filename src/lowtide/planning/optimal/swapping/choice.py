"""Keep, recompute, pack or swap, decided together: one instant's integer program with what a lane can carry as rows.

To be off the device at the instant, a value must have been copied out between its making and the instant; to be read
after it, copied in between the instant and that read. So for every window of time before the instant, the copies of
what is made in it must fit it, and for every window behind it the copies of what is read in it. Where they do not fit,
compute waits, and waiting costs what it takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lowtide.planning.optimal.instants import Model
from lowtide.planning.optimal.program_view import ProgramView
from lowtide.planning.optimal.settings import SETTINGS
from lowtide.planning.optimal.swapping.arrange import next_need, start_times
from lowtide.planning.problem import COMPUTE, Problem
from lowtide.planning.swaps import Swap


@dataclass(frozen=True)
class Lanes:
    """A problem with its swaps, seen by a planner of instants: copies cost compute `release`'s time and no more.

    That holds for every schedule: a value that is out has been waited for, and by its own `release` (see `_charged`).
    """

    problem: Problem
    swaps: tuple[Swap, ...]

    @cached_property
    def view(self) -> ProgramView:
        """The problem with copies as ops of compute that take what their `release` does."""
        ops = list(self.problem.ops)
        for o, op in enumerate(ops):
            if op.lane != COMPUTE:
                ops[o] = replace(op, lane=COMPUTE, time=0.0)
        for swap in self.swaps:
            if self._charged(swap):
                ops[swap.offload] = replace(ops[swap.offload], time=self.problem.times[swap.release])
        return ProgramView(Problem(self.problem.name, self.problem.storages, tuple(ops)))

    def away(self, swap: Swap) -> int:
        """The off-device form of what is swapped."""
        return self.problem.ops[swap.offload].writes[0]

    def at(self, model: Model) -> list[Swap]:
        """The swaps that a model of one instant knows."""
        return [swap for swap in self.swaps if self.away(swap) in model.keep[0] and swap.prefetch in model.run[0]]

    def carry(
        self,
        model: Model,
        before: Mapping[Swap, float],
        behind: Mapping[Swap, float],
        also_before: Mapping[int, float],
        also_behind: Mapping[int, float],
    ) -> None:
        """Rows for what the lanes can carry before the instant and behind it; compute waits for the rest."""
        out, back = model.program.amount(1.0), model.program.amount(1.0)
        times = self.problem.times
        _rows(model, before, lambda s: (model.keep[0][self.away(s)], times[s.offload]), {out: -1.0, **also_before})
        _rows(model, behind, lambda s: (model.run[0][s.prefetch], times[s.prefetch]), {back: -1.0, **also_behind})

    def _charged(self, swap: Swap) -> bool:
        """Is `release` the only op of compute that waits for the copy, and no other op makes one?"""
        away = self.away(swap)
        waits = [o for o in self.problem.readers[away] if self.problem.ops[o].lane == COMPUTE]
        return waits == [swap.release] and list(self.problem.producers[away]) == [swap.offload]


def chosen_swaps(lanes: Lanes, budget: int, instant: int, *, share: float, seconds: float) -> tuple[float, list[Swap]]:
    """What the cheapest decision that fits at `instant` costs, and what it swaps in `share` of a lane's time."""
    view = lanes.view
    model = Model(view, budget, [instant])
    if model.impossible:
        return float("inf"), []
    begins = start_times(view)
    able = [swap for swap in lanes.at(model) if _idle(view, swap.storage, instant)]
    lanes.carry(
        model,
        before={swap: share * (begins[instant] - begins[view.born[swap.storage] + 1]) for swap in able},
        behind={swap: share * (begins[next_need(view, swap.storage, instant)] - begins[instant]) for swap in able},
        also_before={},
        also_behind={},
    )
    outcome = model.solve(seconds=seconds, tolerance=SETTINGS.swap_gap)
    if outcome.decision is None:
        return float("inf"), []
    stored, runs = outcome.decision.stored[0], outcome.decision.runs[0]
    return outcome.objective, [swap for swap in able if lanes.away(swap) in stored and swap.prefetch in runs]


def instant_bound(lanes: Lanes, budget: int, instant: int, *, seconds: float) -> float:
    """The least extra time that any schedule needs because of `instant`, swaps included.

    What is out at the instant has been released, and what is there in another form has been packed: that takes its
    time before it. Other time before the instant beyond the program's is `out`, whatever it is spent on; behind it,
    ops that run again and `back`. All of it is time in which copies can go on.
    """
    view = lanes.view
    model = Model(view, budget, [instant], certify=True)
    if model.impossible:
        return float("inf")
    begins, until = start_times(view), _needed_until(view)
    cost, times = model.program.cost, view.problem.times
    swaps = lanes.at(model)
    lanes.carry(
        model,
        before={swap: begins[instant] - begins[view.born[swap.storage] + 1] for swap in swaps},
        behind={swap: begins[until[swap.storage]] - begins[instant] for swap in swaps},
        also_before={c: -cost[c] for c in model.keep[0].values() if cost[c]},
        also_behind={column: -times[o] for o, column in model.run[0].items() if times[o]},
    )
    return model.solve(seconds=seconds).bound


def _rows(
    model: Model, limits: Mapping[Swap, float], load: Callable[[Swap], tuple[int, float]], also: Mapping[int, float]
) -> None:
    """For some of the limits: the copies that must be over within it, less what `also` adds to it, fit it."""
    ordered = sorted(limits, key=limits.__getitem__)
    ends = [k for k in range(len(ordered)) if k + 1 == len(ordered) or limits[ordered[k]] < limits[ordered[k + 1]]]
    if len(ends) > SETTINGS.swap_windows:
        ends = [ends[(k + 1) * len(ends) // SETTINGS.swap_windows - 1] for k in range(SETTINGS.swap_windows)]
    for end in ends:
        weights = dict(also)
        for swap in ordered[: end + 1]:
            column, time = load(swap)
            weights[column] = weights.get(column, 0.0) + time
        model.program.at_most(weights, max(0.0, limits[ordered[end]]))


def _idle(view: ProgramView, s: int, instant: int) -> bool:
    """Is `s` there before the instant, read after it, and not by it?"""
    return view.born[s] < instant and instant not in view.needs[s] and view.last[s] > instant


def _needed_until(view: ProgramView) -> list[int]:
    """Per storage the last position of the program that can need it, through whatever is run again from it."""
    problem = view.problem
    until = [view.last.get(s, 0) for s in range(len(problem.storages))]
    changed = True
    while changed:
        changed = False
        for o in range(len(problem.ops) - 1, -1, -1):
            reach = (
                max((until[s] for s in problem.writes[o]), default=0)
                if not problem.ops[o].once or problem.ops[o].optional
                else 0
            )
            for s in problem.reads[o]:
                if until[s] < reach:
                    until[s], changed = reach, True
    return until
