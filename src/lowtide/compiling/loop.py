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
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor

from lowtide.compiling.compiled_graph import CompiledGraph, Crossing
from lowtide.compiling.settings import Settings
from lowtide.compiling.within import fixed_bytes, ladder, measured, plan_low, plan_within, point_of
from lowtide.device.live import live_bytes
from lowtide.device.meter import meter_for
from lowtide.errors import InputError, LowtideError, ProfileError
from lowtide.planning.policies import BudgetInfeasible
from lowtide.planning.sharing import Event, Limits, Point, choose, limits_of, peak_of
from lowtide.records.step_plan import StepPlan
from lowtide.training.planned import Planned, apply_plan
from lowtide.units import format_bytes

log = logging.getLogger(__name__)
TOLERANCE = 0.01
"""A measured peak that differs from the predicted one by more is reported."""
WATCHED = 3
"""So many cycles are measured where that is not free."""
FIRST_SHARE = 0.3
"""Of the usual time for a plan: what the first one of a graph may take, which seldom stays."""


@dataclass
class Cycle:
    """What happened in one cycle."""

    start: int
    """Device bytes at its beginning."""
    events: list[Event] = field(default_factory=list)
    peak: int = 0
    """The most device bytes, measured."""
    inside: int = 0
    """The most while a planned graph ran."""
    predicted: int | None = None
    is_prepared: bool = False
    """Something was measured and planned in it, so its peak says little."""

    @property
    def signature(self) -> tuple[tuple[int, bool], ...]:
        """Which halves ran in which order."""
        return tuple((event.graph, event.is_forward) for event in self.events if event.graph is not None)


class Watch:
    """Device bytes now and at the highest since it was last asked, whoever took them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        meter = meter_for(device)
        self.is_free = meter.free
        self._meter = meter if meter.free or device.type == "cuda" else None
        """None where torch.profiler would have to count, which the user may want for himself."""
        self.now = 0
        self._running = False

    def note(self, *, anew: bool = False) -> int:
        """The highest since the last time; from here on it counts anew. `anew` looks at all tensors there are."""
        self.stop()
        peak = self._peak
        if anew or self._meter is None:
            self.now = live_bytes(self._device)
        if self._meter is not None:
            self._meter.start()
            self._running = True
        self._peak = self.now
        return peak

    _peak = 0

    def stop(self) -> None:
        """No more counting until the next note."""
        if self._running and self._meter is not None:
            taken = self._meter.stop()
            self._peak, self.now = max(self._peak, self.now + taken.peak), self.now + taken.net
            self._running = False


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
        self._lock = threading.RLock()
        self._numbers = count()
        self._number: dict[int, weakref.ref[CompiledGraph]] = {}
        self._known: dict[tuple[tuple[int, bool], ...], Cycle] = {}
        self._open: list[tuple[int, weakref.ref[Crossing]]] = []
        self._during: list[tuple[int, Crossing]] = []
        """Those that were open when what runs now began."""
        self._watch: Watch | None = None
        self._cycle: Cycle | None = None
        self._fresh = False
        """A graph has been planned by itself in this cycle."""
        self._exceeded = False
        """The budget was exceeded, which was said."""

    def graphs(self) -> list[CompiledGraph]:
        """Those that are alive."""
        return [graph for graph in (ref() for ref in self._number.values()) if graph is not None]

    def begin(self, graph: CompiledGraph, inputs: Sequence[Tensor]) -> None:
        """Forward of `graph` is about to run; where it has no plan yet, it gets one now."""
        with self._lock:
            is_open = self._open_now()
            if not is_open or self._cycle is None:
                self._next_cycle()
            elif self._watches:
                self._between()
            if graph.planned is None:
                self._prepare(graph, inputs)

    def end_forward(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """Forward of `graph` has run and left `crossing`."""
        with self._lock:
            self._during = self._open_now()
            self._happened(graph, is_forward=True)
            self._open.append((self._number_of(graph), weakref.ref(crossing)))

    def begin_backward(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """Backward of `graph` is about to run."""
        with self._lock:
            if self._watches:
                self._between()
            self._during = self._open_now()

    def end_backward(self, graph: CompiledGraph, crossing: Crossing) -> None:
        """Backward of `graph` has run."""
        with self._lock:
            self._happened(graph, is_forward=False)
            self._open = [entry for entry in self._open if entry[1]() is not crossing or not crossing.ended]

    @property
    def predicted_peak(self) -> int | None:
        """Of the newest cycle that ended, by the simulator."""
        return None if self.last is None else self.last.predicted

    @property
    def measured_peak(self) -> int | None:
        """Of the newest cycle that ended and in which nothing was planned."""
        return None if self.last is None else self.last.peak

    @property
    def _watches(self) -> bool:
        return self._watch is not None and (self._watch.is_free or self.cycles < WATCHED)

    def _open_now(self) -> list[tuple[int, Crossing]]:
        alive = [(number, ref, ref()) for number, ref in self._open]
        self._open = [(number, ref) for number, ref, crossing in alive if crossing is not None and not crossing.ended]
        return [(number, crossing) for number, _, crossing in alive if crossing is not None and not crossing.ended]

    def _number_of(self, graph: CompiledGraph) -> int:
        for number, ref in self._number.items():
            if ref() is graph:
                return number
        number = next(self._numbers)
        self._number[number] = weakref.ref(graph)
        return number

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
        self._known[cycle.signature] = cycle
        if cycle.is_prepared:
            return
        self.last = cycle
        budget = self.settings.budget_bytes
        if budget is not None and cycle.peak > budget and not self._exceeded:
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
        self._during = self._open_now()
        self._note(None, is_forward=False)

    def _happened(self, graph: CompiledGraph, *, is_forward: bool) -> None:
        """Note a half that has run."""
        if self._watches:
            self._note(graph if graph.point is not None else None, is_forward=is_forward)

    def _note(self, graph: CompiledGraph | None, *, is_forward: bool) -> None:
        watch, cycle = self._watch, self._cycle
        assert watch is not None
        assert cycle is not None
        found = [(number, crossing) for number, crossing in self._during if self._is_planned(number)]
        self._during = []
        before, peak = watch.now, watch.note()
        cycle.peak = max(cycle.peak, peak)
        if graph is not None:
            cycle.inside = max(cycle.inside, peak)
        cycle.events.append(
            Event(
                None if graph is None else self._number_of(graph),
                is_forward,
                before - sum(crossing.bytes for _, crossing in found),
                tuple(number for number, _ in found),
                max(0, peak - before),
            )
        )

    def _is_planned(self, number: int) -> bool:
        graph = self._number[number]() if number in self._number else None
        return graph is not None and graph.point is not None

    def _prepare(self, graph: CompiledGraph, inputs: Sequence[Tensor]) -> None:
        """Measure and plan a graph at its first call, with what is left now."""
        budget = self.settings.budget_bytes
        watch, cycle = self._watch, self._cycle
        assert watch is not None
        assert cycle is not None
        if budget is None:
            graph.planned = Planned(graph.captured, graph.captured, None)
            return
        self._fresh = cycle.is_prepared = True
        own = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in inputs}
        given = sum(own.values())
        there = max(watch.now, given + self.settings.reserve_bytes)
        room = budget - there
        if room < 0:
            raise InputError(
                f"the budget is {budget} bytes, but {there} are on the device before forward: parameters, optimizer "
                "state, batch and whatever else is alive; give a larger budget, or free what is not needed"
            )
        watch.stop()
        try:
            constants = len(graph.captured.residents)
            graph.profile = measured(graph.captured, inputs[constants:], given + room, self.settings)
        except ProfileError as error:
            graph.planned = Planned(graph.captured, graph.captured, None)
            self.runs_unplanned(str(error))
            return
        finally:
            watch.note()
        _, fixed = fixed_bytes(graph.captured, graph.profile)
        limits = Limits(room, budget, room - fixed)
        try:
            self._use(graph, plan_within(graph.captured, graph.profile, limits, self.settings, share=FIRST_SHARE))
        except BudgetInfeasible as infeasible:
            if not self._open_now():
                raise
            self._use(graph, plan_low(graph.captured, graph.profile, limits, infeasible, self.settings))
        watch.note()

    def _use(self, graph: CompiledGraph, planned: Planned) -> Point:
        assert planned.plan is not None
        graph.planned, graph.point = planned, point_of(graph.captured, planned.plan)
        return graph.point

    def runs_unplanned(self, why: str) -> None:
        """A graph cannot be planned: it runs as it is, which is said once for each reason."""
        if why not in self.unplanned:
            self.unplanned.append(why)
            log.warning("a compiled graph runs without a plan, outside of the budget: %s", why)

    def _adapt(self, now: int) -> None:
        """Plan again where something is new, or where others have come to hold more than fits."""
        budget, cycle = self.settings.budget_bytes, self._cycle
        assert budget is not None
        assert cycle is not None
        self._known = {s: c for s, c in self._known.items() if all(self._is_planned(number) for number, _ in s)}
        numbers = sorted({number for signature in self._known for number, _ in signature})
        place = {number: k for k, number in enumerate(numbers)}
        graphs = [graph for graph in (self._number[number]() for number in numbers) if graph is not None]
        events = [
            _expected(event, now - known.start, place) for known in self._known.values() for event in known.events
        ]
        if not graphs:
            return
        points = [graph.point for graph in graphs if graph.point is not None]
        is_new = self._fresh and any(graph.is_rewritten for graph in graphs)
        if is_new or peak_of(events, points) > budget:
            try:
                points = self._plan_together(graphs, events, points, budget)
            except BudgetInfeasible:
                # What others have come to hold may be gone before it counts (`zero_grad` behind forward): wait and see.
                if all(now <= known.start for known in self._known.values()):
                    raise
            else:
                self._fresh, cycle.is_prepared = False, True
            assert self._watch is not None
            self._watch.note()
        cycle.predicted = peak_of(events, points)

    def _plan_together(
        self, graphs: Sequence[CompiledGraph], events: Sequence[Event], points: list[Point], budget: int
    ) -> list[Point]:
        """New plans for all of them: alone a graph gets all that is left. Several, or several calls of one that are
        open at once, first share by a common price, then each gets what the others leave."""
        if len(graphs) == 1 and not any(event.is_nested for event in events):
            return [self._plan_alone(graphs[0], limits_of(0, events, points, budget))]
        ladders = [self._ladder(graph) for graph in graphs]
        found = choose([[point for _, point in steps] for steps in ladders], events, budget)
        if found is None:
            least = [min((p for _, p in steps), key=lambda p: p.weight) for steps in ladders if steps]
            raise SharedBudgetUnreachable(len(graphs), budget, peak_of(events, least) if all(ladders) else budget)
        for graph, steps, k in zip(graphs, ladders, found, strict=True):
            self._use(graph, apply_plan(graph.captured, steps[k][0]))
        points = [steps[k][1] for steps, k in zip(ladders, found, strict=True)]
        for k, graph in enumerate(graphs):
            before = graph.planned
            assert before is not None
            try:
                point = self._plan_alone(graph, limits_of(k, events, points, budget))
            except BudgetInfeasible:  # the one from the ladder stays
                continue
            other = [*points[:k], point, *points[k + 1 :]]
            if peak_of(events, other) <= budget and point.time < points[k].time:
                points = other
            else:
                self._use(graph, before)
        return points

    def _plan_alone(self, graph: CompiledGraph, limits: Limits) -> Point:
        assert graph.profile is not None
        return self._use(graph, plan_within(graph.captured, graph.profile, limits, self.settings))

    def _ladder(self, graph: CompiledGraph) -> list[tuple[StepPlan, Point]]:
        if graph.ladder is None:
            assert graph.profile is not None
            plans = ladder(graph.captured, graph.profile, self.settings)
            graph.ladder = [(plan, point_of(graph.captured, plan)) for plan in plans]
        return graph.ladder


class SharedBudgetUnreachable(BudgetInfeasible):
    """Several graphs do not fit together."""

    def __init__(self, graphs: int, budget: int, floor: int) -> None:
        self.budget, self.floor, self.proven, self.blockers, self.workspace = budget, floor, False, (), ("", 0)
        LowtideError.__init__(
            self,
            f"no plan was found that keeps the compiled graphs of the step ({graphs}) within {format_bytes(budget)} "
            f"({budget} bytes): the least peak reached is {format_bytes(floor)} ({floor} bytes); a smaller batch helps",
        )


def _expected(event: Event, growth: int, place: dict[int, int]) -> Event:
    """`event` where more is there from the beginning, with graphs named by their place."""
    return replace(
        event,
        graph=None if event.graph is None else place[event.graph],
        open=tuple(place[number] for number in event.open if number in place),
        before=event.before + max(0, growth),
    )


loops: dict[tuple[Settings, torch.device], Loop] = {}


def loop_of(settings: Settings, device: torch.device) -> Loop:
    """The loop that graphs with these settings belong to."""
    return loops.setdefault((settings, device), Loop(settings, device))
