"""The user's loop as its compiled graphs see it: who is called when, what is on the device then, who may take how much.

A cycle is the time from a forward before which nothing was due to the next such forward: a training step as a rule, a
micro-step where gradients accumulate. In the first one graph by graph is planned, each with what is left at its call.
From then on all graphs of a cycle are known, and so is what others hold, so they are planned together; and again where
others have come to hold more, such as an optimizer that made its state.
"""

import logging
import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from lowtide.compiling.calls import Calls
from lowtide.compiling.compiled_graph import CompiledGraph, Crossing
from lowtide.compiling.cycle import Cycle, expected
from lowtide.compiling.settings import Settings
from lowtide.compiling.together import bytes_of, forget, measure, plan_first, plan_lowest, plan_together
from lowtide.compiling.watch import Watch
from lowtide.errors import InputError, ProfileError
from lowtide.planning.policies import BudgetInfeasible
from lowtide.planning.sharing import Event, Point, apart, peak_of, within
from lowtide.training.planned import Planned
from lowtide.units import format_bytes

log = logging.getLogger(__name__)
TOLERANCE = 0.01
"""A measured peak that differs from the predicted one by more is reported."""
WATCHED = 3
"""So many cycles are measured where that is not free."""


class Loop:
    """All graphs that were compiled with the same settings for one device; they share the budget."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        self.settings = settings
        self.device = device
        self.cycles = 0
        """How many have ended."""
        self.last: Cycle | None = None
        """The newest that has ended."""
        self.unplanned: list[str] = []
        """Why graphs run unplanned."""
        self.compiled = 0
        """How many graphs have come from torch.compile."""
        self.recompiles: list[str] = []
        """Why dynamo compiled something again, in its own words."""
        self._lock = threading.RLock()
        self._calls = Calls()
        self._known: dict[tuple[tuple[int, bool], ...], Cycle] = {}
        self._during: list[tuple[int, Crossing]] = []
        """Those that were open when what runs now began."""
        self._watch: Watch | None = None
        self._cycle: Cycle | None = None
        self._fresh: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()
        """Planned by themselves, or with too little: to be planned with the others that are there in their cycle."""
        self._exceeded = False
        """The budget was exceeded, which was said."""
        self._replanned = False
        """Graphs took more than was predicted, and more than the budget: they are planned again, once."""
        self._spared = 0
        """Bytes by which they did: left free by what is planned now."""

    def graphs(self) -> list[CompiledGraph]:
        """Those that are alive."""
        return self._calls.graphs()

    def begin(self, graph: CompiledGraph, inputs: Sequence[Tensor]) -> None:
        """Forward of `graph` is about to run; where it has no plan yet, it gets one now."""
        with self._lock:
            if not self._calls.open() or self._cycle is None:
                self._next_cycle()
            elif self._watches:
                self._between()
            if graph.planned is None:
                self._prepare(graph, inputs)

    def end_forward(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """Forward of `graph` has run and left `crossing`."""
        with self._lock:
            self._during = self._calls.open()
            self._happened(graph, is_forward=True)
            self._calls.opened(graph, crossing)

    def begin_backward(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """Backward of `graph` is about to run."""
        with self._lock:
            if self._watches:
                self._between()
            self._during = self._calls.open()

    def end_backward(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """Backward of `graph` has run."""
        with self._lock:
            self._happened(graph, is_forward=False)

    @property
    def predicted_peak(self) -> int | None:
        """Of the newest cycle that ended, by the simulator."""
        return None if self.last is None else self.last.predicted

    @property
    def measured_peak(self) -> int | None:
        """Of the newest cycle that ended and in which nothing was planned."""
        return None if self.last is None else self.last.peak

    def __repr__(self) -> str:
        def shown(size: int | None) -> str:
            return "-" if size is None else format_bytes(size)

        planned = sum(graph.is_rewritten for graph in self.graphs())
        return (
            f"<lowtide loop: {self.compiled} graphs compiled ({len(self.recompiles)} of them again), {planned} of "
            f"{len(self.graphs())} rewritten, {len(self.unplanned)} reasons for running unplanned; budget "
            f"{shown(self.settings.budget_bytes)}, predicted {shown(self.predicted_peak)}, measured "
            f"{shown(self.measured_peak)}>"
        )

    @property
    def _watches(self) -> bool:
        return self._watch is not None and (self._watch.is_free or self.cycles < WATCHED)

    def _next_cycle(self) -> None:
        """Close the cycle that has ended, and look whether all still fits."""
        watch = self._watch = self._watch or Watch(self.device)
        if self._cycle is not None and self._watches:
            self._cycle.peak = max(self._cycle.peak, watch.note(anew=self.cycles < WATCHED))
            self._close(self._cycle)
        elif self._watches or self._cycle is None:
            watch.note(anew=True)
        if not self._watches:
            watch.stop()
        self._cycle = Cycle(watch.now)
        if self.settings.budget_bytes is not None and self._watches:
            self._adapt(watch.now)

    def _close(self, cycle: Cycle) -> None:
        self.cycles += 1
        self._known.pop(cycle.signature, None)
        self._known[cycle.signature] = cycle
        budget = self.settings.budget_bytes
        if budget is not None and cycle.grown and cycle.inside > budget:
            log.warning(
                "one training step took %s (%d bytes), more than the budget of %d bytes: %d bytes that live outside of "
                "the compiled graphs are new since the step before, and beside them no plan was found. If they stay, "
                "the next step plans again or raises",
                format_bytes(cycle.peak),
                cycle.peak,
                budget,
                cycle.grown,
            )
        if cycle.is_prepared:
            return
        self.last = cycle
        if budget is not None and cycle.inside > budget and cycle.predicted is not None and not self._replanned:
            self._replanned = True
            self._spared = cycle.inside - cycle.predicted
            log.info(
                "the compiled graphs took %s, predicted were %s: they are planned again with as much less",
                format_bytes(cycle.inside),
                format_bytes(cycle.predicted),
            )
        elif budget is not None and cycle.peak > budget and not self._exceeded:
            self._exceeded = True
            log.error(
                "the training step took %s (%d bytes), more than the budget of %d bytes: %s",
                format_bytes(cycle.peak),
                cycle.peak,
                budget,
                f"in the compiled graphs, for which {cycle.predicted} were predicted; please report this"
                if cycle.inside > budget
                else f"outside of the compiled graphs, which took {cycle.inside}: look at the optimizer's step, the "
                "loss and whatever else runs beside them",
            )
        elif cycle.predicted is not None and abs(cycle.peak / cycle.predicted - 1) > TOLERANCE:
            log.info("the step took %s, predicted were %s", format_bytes(cycle.peak), format_bytes(cycle.predicted))

    def _between(self) -> None:
        """Note what ran since the last half ended, for which nothing is planned."""
        self._during = self._calls.open()
        self._note(None, is_forward=False)

    def _happened(self, graph: CompiledGraph, *, is_forward: bool) -> None:
        """Note a half that has run."""
        if self._watches:
            self._note(graph if graph.point is not None else None, is_forward=is_forward)

    def _note(self, graph: CompiledGraph | None, *, is_forward: bool) -> None:
        watch, cycle = self._watch, self._cycle
        assert watch is not None
        assert cycle is not None
        found = [(number, crossing) for number, crossing in self._during if self._calls.is_planned(number)]
        self._during = []
        before, peak = watch.now, watch.note()
        cycle.peak = max(cycle.peak, peak)
        if graph is not None:
            cycle.inside = max(cycle.inside, peak)
        cycle.events.append(
            Event(
                None if graph is None else self._calls.number(graph),
                is_forward,
                before - sum(crossing.bytes for _, crossing in found),
                tuple(number for number, _ in found),
                max(0, peak - before),
            )
        )

    def _prepare(self, graph: CompiledGraph, inputs: Sequence[Tensor]) -> None:
        """Measure and plan a graph at its first call, with what is left now."""
        budget = self.settings.budget_bytes
        watch, cycle = self._watch, self._cycle
        assert watch is not None
        assert cycle is not None
        if budget is None:
            graph.planned = Planned(graph.captured, graph.captured, None)
            return
        cycle.is_prepared = True
        self._fresh.add(graph)
        there = max(watch.now, bytes_of(inputs) + self.settings.reserve_bytes)
        room = budget - there
        if room < 0:
            raise InputError(
                f"the budget is {budget} bytes, but {there} are on the device before forward: parameters, optimizer "
                "state, batch and whatever else is alive; give a larger budget, or free what is not needed"
            )
        watch.stop()
        try:
            measure(graph, inputs, room, self.settings)
        except ProfileError as error:
            graph.planned = Planned(graph.captured, graph.captured, None)
            self.runs_unplanned(str(error))
            return
        finally:
            watch.note()
        plan_first(graph, room, self.settings, others_wait=bool(self._calls.open()))
        graph.compile()
        watch.note()

    def held_otherwise(self, graph: CompiledGraph) -> None:
        """Less or more is held outside of `graph` in its backward than its plan was made for: the next cycle knows."""
        with self._lock:
            self._fresh.add(graph)

    def compiles(self, why_again: str | None) -> None:
        """A graph comes from torch.compile; where it replaces or joins one of the same code, dynamo says why."""
        self.compiled += 1
        if why_again is not None:
            self.recompiles.append(why_again)
            log.info("compiled again, for the %d. time: %s", len(self.recompiles), why_again)

    def runs_unplanned(self, why: str) -> None:
        """A graph cannot be planned: it runs as it is, which is said once for each reason."""
        if why not in self.unplanned:
            self.unplanned.append(why)
            log.warning("a compiled graph runs without a plan, outside of the budget: %s", why)

    def _adapt(self, now: int) -> None:
        """Plan again where something is new, or where others have come to hold more than fits."""
        budget, cycle, watch = self.settings.budget_bytes, self._cycle, self._watch
        assert budget is not None
        assert cycle is not None
        assert watch is not None
        self._known = {s: c for s, c in self._known.items() if all(self._calls.is_planned(number) for number, _ in s)}
        numbers = sorted({number for signature in self._known for number, _ in signature})
        place = {number: k for k, number in enumerate(numbers)}
        graphs = [graph for graph in (self._calls.graph(number) for number in numbers) if graph is not None]
        events = [expected(event, now - known.start, place) for known in self._known.values() for event in known.events]
        if not graphs:
            return
        newest = next(reversed(self._known))
        due, grown = {place[number] for number, _ in newest}, max(0, now - self._known[newest].start)
        for group in apart(len(graphs), events):
            members, around = [graphs[k] for k in group], within(group, events)
            points = [graph.point for graph in members if graph.point is not None]
            is_new = any(graph in self._fresh for graph in members) and any(graph.is_rewritten for graph in members)
            self._fresh.difference_update(members)
            if is_new or peak_of(around, points) > budget - self._spared:
                self._plan(members, around, points, grown, is_due=not due.isdisjoint(group))
                cycle.is_prepared = True
        watch.note()
        points = [graph.point for graph in graphs if graph.point is not None]
        if len(points) == len(graphs):
            cycle.predicted = peak_of(events, points)

    def _plan(
        self, graphs: Sequence[CompiledGraph], events: Sequence[Event], points: list[Point], grown: int, *, is_due: bool
    ) -> None:
        """New plans for `graphs`, which share the budget. Where there are none, those that are not due are planned at
        their next call, with what is there then; for the others it raises.

        But the `grown` bytes that are new outside of the graphs may be gone before they count (`zero_grad` behind
        forward): then this cycle runs with the least that was found, says so if that is too much, and what it sees
        decides.
        """
        budget, cycle = self.settings.budget_bytes, self._cycle
        assert budget is not None
        assert cycle is not None
        for spared in dict.fromkeys((self._spared, 0)):
            try:
                plan_together(graphs, events, points, budget - spared, self.settings)
            except BudgetInfeasible as infeasible:
                if spared:
                    self._spared = 0
                    if peak_of(events, points) <= budget:  # as predicted, so what is there stays
                        forget(infeasible)
                        break
                elif not is_due:
                    for graph in graphs:
                        graph.planned = graph.point = None
                else:
                    if not grown:
                        raise
                    cycle.grown = grown
                    self._fresh.update(graphs)
                    plan_lowest(graphs, events, points, infeasible, self.settings)
                forget(infeasible)
            else:
                break
        for graph in graphs:
            if graph.planned is not None:
                graph.compile()


loops: dict[tuple[Settings, torch.device], Loop] = {}


def loop_of(settings: Settings, device: torch.device) -> Loop:
    """The loop that graphs with these settings belong to."""
    return loops.setdefault((settings, device), Loop(settings, device))
