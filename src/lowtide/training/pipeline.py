"""From a traced step to steps that fit: profile -> problem -> plan -> rewrite -> verify, which runs twice.

A step that does not fit into memory cannot be measured as it is. So the first pass works on an estimate: its plan need
not be good, it only has to stay inside the budget, and the ops are measured while it runs, in the first steps of the
training itself. The second pass works on what was measured, and its plan is the one that trains from then on.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from torch import Tensor

from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import Ledger, Micro, UpdateForm
from lowtide.parallel.merged import merged
from lowtide.parallel.ranks import ALONE, Ranks
from lowtide.planning.apart import planner
from lowtide.planning.policies import BudgetInfeasible, Policy
from lowtide.profiling.beside import Links
from lowtide.profiling.estimate import estimate
from lowtide.profiling.link import with_link_times
from lowtide.profiling.problem import StepProblem, problem_of, without_idle_runs
from lowtide.profiling.profile import Progress as MeasureProgress
from lowtide.profiling.profile import profile
from lowtide.profiling.scaled import Basis
from lowtide.profiling.signs import sign_profiles
from lowtide.profiling.while_training import Measuring
from lowtide.records.profile import Profile
from lowtide.records.step_plan import PlanFile, StepPlan
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from lowtide.tracing.capture import Traced
from lowtide.training.following import are_alike
from lowtide.training.identity import identity
from lowtide.training.options import Options
from lowtide.training.planned import BudgetUnreachable, Planned, Say, Variant, apply_plan, make_plan
from lowtide.training.progress import Progress
from lowtide.training.swap_use import SwapUse
from lowtide.units import format_bytes, parse_bytes

PLANNING_STEPS = 3.0
"""A plan may take as long as this many steps, within reason, where no time limit is given."""
PROVISIONAL_SHARE = 0.25
"""Of a time limit: what the provisional plan may take at most."""
SECONDS_PER_OP, LEAST_SECONDS, MOST_SECONDS = 0.0005, 0.3, 3.0
"""The first attempt at a provisional plan takes so long at most, by the number of ops. Of ResNet-152 and BERT-Base, 1 s
found overheads within 0.1 points of those of 3 s."""
ROOM = 0.9
"""Share of a budget that a provisional plan fills, while nothing is measured yet."""
UNKNOWN_SIZES = ("aten.mkldnn_rnn_layer.default",)
"""Ops that keep a workspace for backward whose size only the library knows."""
NEAR_THE_FLOOR = (1.0, 1.05, 1.15, 1.4)
"""Times the least peak that was found: budgets for a provisional plan where the wanted one is out of reach."""
WORTH = 0.01
"""Share of the bytes above the residents from which ReLU results are worth a second plan, with signs."""


log = logging.getLogger(__name__)


class StageTimes:
    """Seconds by stage; each is logged with what came of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._before = perf_counter()

    def go_on(self) -> None:
        """What has passed since the last stage was the user's."""
        self._before = perf_counter()

    def note(self, stage: str, result: str = "") -> None:
        """A stage has ended."""
        now = perf_counter()
        log.info("%s: %.1f s%s", stage, now - self._before, result and f", {result}")
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._before
        self._before = now


@dataclass(frozen=True)
class Source:
    """What plans are made from: the measured step without accumulation, and its variant with signs where it has one."""

    plain: Basis
    signs: Basis | None
    links: Links
    """How the times of collectives divide, which are the same in every shape of the batch."""


@dataclass
class Guess:
    """A step that stays inside its budget by an estimate, and is measured while it runs."""

    traced: Traced
    graphs: Mapping[Micro, StepGraph]
    whole: StepGraph
    """The step without accumulation, which is what is measured."""
    signed: StepGraph | None
    through: StepGraph | None
    """`whole` rewritten; None where it fits as it is."""
    budget: int
    """As far as it is known: a share is one of the estimated step."""
    fits: bool
    """Is the estimate well inside the budget?"""
    seconds: float
    """That planning has taken of the time limit."""
    measuring: Measuring
    example: Any
    """The batch that it was captured with, until the first step has run."""
    over: bool = False
    """Was a step over the budget?"""
    plan: StepPlan | None = None
    """By which it runs, where that is one for training; None where it is only to measure with."""

    @property
    def can_train(self) -> bool:
        """Can it be measured in the first steps of the training? Not where the budget is near what the estimate can
        reach or the estimate knows too little, and not in parts of a step."""
        known = not any(op.op in UNKNOWN_SIZES for op in self.whole.ops)
        return self.fits and known and set(self.graphs) == {Micro.ONLY}

    @property
    def steps(self) -> dict[Micro, Planned]:
        """What trains until the plan is made."""
        by_signs = self.through is not None and bool(self.through.signs)
        captured = self.signed if by_signs and self.signed is not None else self.whole
        return {Micro.ONLY: Planned(captured, self.through or self.whole, self.plan)}

    @property
    def may_stop_midway(self) -> bool:
        """Can the next run find out that the trace was wrong when parameters have moved already?"""
        ops = (self.through or self.whole).ops
        moved = next((op.rank for op in ops if op.is_update), len(ops))
        return self.measuring.steps == 0 and any(not op.is_update for op in ops[moved:])

    @property
    def is_measured(self) -> bool:
        """Have enough steps been measured, or was one over the budget?"""
        return self.over or self.measuring.steps >= self.measuring.wanted

    def run(self, batch: Sequence[Tensor], ledger: Ledger) -> tuple[Any, int]:
        """One step of the training: what it returns, and the bytes that it took beyond what was there."""
        result = self.measuring.run(batch, ledger)
        self.example = None
        return result

    def took(self, peak: int) -> None:
        """So many bytes were in use at the peak of the last step."""
        if peak > self.budget:
            self.over = True
            log.warning(
                "step %d, which was measured, took %s of %s: the plan is made before the next one",
                *(self.measuring.steps, format_bytes(peak), format_bytes(self.budget)),
            )

    def measured(self, progress: MeasureProgress) -> tuple[Profile, str]:
        """Of the steps so far, or of runs of its own where there were none; and how it was measured."""
        if self.measuring.steps:
            return self.measuring.profile(), f"in {self.measuring.steps} steps of training"
        found = profile(self.whole, self.example, runs=2, quick=True, through=self.through, progress=progress)
        return found, "before training"


def guess_steps(
    traced: Traced,
    graphs: Mapping[Micro, StepGraph],
    example: Any,
    wanted: Options,
    bar: Progress,
    times: StageTimes,
    ranks: Ranks,
) -> Guess:
    """A provisional plan for the step in `graphs`, which was traced with the batch `example`."""
    assert wanted.budget is not None, "without a budget there is nothing to plan"
    whole = _whole(traced, graphs, wanted)
    signed = _worthwhile_signs(traced, whole) if wanted.allowed.pack else None
    seconds = provisional_seconds(whole, wanted.time_limit)
    through, fits = _provisional(whole, signed, wanted.budget, seconds=seconds, say=bar.planning, ranks=ranks)
    times.note("provisional plan", "not needed" if through is None else "the ops are measured while it runs")
    budget = parse_bytes(wanted.budget, whole=estimate(whole).step_peak_B)
    spent, measuring = 0.0 if through is None else seconds, Measuring(whole, through)
    return Guess(traced, graphs, whole, signed, through, budget, fits, spent, measuring, example)


def guess_by(
    traced: Traced, graphs: Mapping[Micro, StepGraph], example: Any, planned: Planned, wanted: Options
) -> Guess | None:
    """The step in `graphs` by the plan of `planned`, which has trained the same one so far: it stays inside the budget,
    so it can be measured in steps of the training. None where it is another step, or several kinds of it."""
    plan = planned.plan
    if plan is None or not isinstance(wanted.budget, int) or set(graphs) != {Micro.ONLY}:
        return None
    whole = graphs[Micro.ONLY]
    signed = _worthwhile_signs(traced, whole) if wanted.allowed.pack else None
    variant = signed if plan.signs else whole
    if variant is None or identity(variant) != plan.step:
        return None
    through = planned.graph if plan.rewritten else None
    measuring = Measuring(whole, through)
    return Guess(traced, graphs, whole, signed, through, wanted.budget, True, 0.0, measuring, example, plan=plan)


def plan_steps(
    guess: Guess,
    wanted: Options,
    swap: SwapUse,
    bar: Progress,
    times: StageTimes,
    ranks: Ranks,
    beside_tensors: Callable[[int], int],
) -> tuple[dict[Micro, Planned], Source]:
    """Every kind of step planned into the budget by what is measured of it, and what the plans are made from.

    Several `ranks` measure together, the first of them plans, and all take its plan. `beside_tensors` says, after
    measuring, how many bytes of a budget are not for tensors.
    """
    assert wanted.budget is not None, "without a budget there is nothing to plan"
    traced, graphs, whole, signed = guess.traced, guess.graphs, guess.whole, guess.signed
    with ranks.watched("measuring"):
        measured, how = guess.measured(bar.measuring)
        measured, links = with_link_times(merged(measured, ranks), whole, ranks)
    peak = format_bytes(max(measured.peak_B, measured.step_peak_B))
    times.note("measure", f"{len(measured.ops)} ops {how}, {measured.step_ms:.0f} ms a step, {peak} without a plan")
    budget = parse_bytes(wanted.budget, whole=max(measured.peak_B, measured.step_peak_B))
    budget -= beside_tensors(budget)
    lanes = swap.lanes(whole)
    if lanes is not None:
        bar.say("measure, swapping")
        measured = swap.measured(measured)
        times.note("measure swapping")
    with_signs = measured
    if signed is not None:
        measured, with_signs = sign_profiles(measured, signed)

    source = Source(
        Basis(measured, estimate(whole)), None if signed is None else Basis(with_signs, estimate(signed)), links
    )
    limit = _planning_seconds(measured, wanted, len(graphs), guess.seconds)
    steps = {}
    for kind, (graph, variant) in _variants(traced, graphs, signed).items():
        chosen, plan = _agreed(
            ranks,
            graph,
            variant,
            lambda graph=graph, variant=variant: make_plan(  # type: ignore[misc]
                Variant(graph, measured),
                None if variant is None else Variant(variant, with_signs),
                budget,
                name=wanted.policy,
                time_limit=limit,
                say=bar.planning,
                lanes=lanes,
                links=links,
                allowed=wanted.allowed,
            ),
        )
        times.note("plan", told(plan))
        steps[kind] = apply_plan(chosen, plan)
        times.note("rewrite")
    return steps, source


def plan_alike(
    traced: Traced,
    graphs: Mapping[Micro, StepGraph],
    wanted: Options,
    budget: int,
    source: Source,
    others: Sequence[Mapping[Micro, Planned]],
    swap: SwapUse,
    bar: Progress,
    times: StageTimes,
    ranks: Ranks,
) -> dict[Micro, Planned] | None:
    """Every kind of step in `graphs` by the decisions of `others`, which are the same step in other shapes.

    Nothing is measured: figures are those of `source`, scaled. Where no decisions fit, the planner works on those
    figures. None where the ops are others, or where no plan is found.
    """
    whole = _whole(traced, graphs, wanted)
    signed = None if source.signs is None else _worthwhile_signs(traced, whole)
    variants = _variants(traced, graphs, signed)
    follow = {
        kind: [
            other[kind].plan
            for other in others
            if any(v is not None and are_alike(other[kind].captured, v) for v in variants[kind])
        ]
        for kind in graphs
    }
    if not all(follow.values()):
        return None
    measured, lanes = source.plain.scaled(whole), swap.lanes(whole)
    with_signs = None if signed is None or source.signs is None else source.signs.scaled(signed)
    limit = _planning_seconds(measured, wanted, len(graphs), 0.0)
    steps = {}
    for kind, (graph, variant) in variants.items():
        try:
            chosen, plan = _agreed(
                ranks,
                graph,
                variant,
                lambda graph=graph, variant=variant, kind=kind: make_plan(  # type: ignore[misc]
                    Variant(graph, measured),
                    None if variant is None or with_signs is None else Variant(variant, with_signs),
                    budget,
                    name=wanted.policy,
                    time_limit=limit,
                    say=bar.planning,
                    lanes=lanes,
                    links=source.links,
                    allowed=wanted.allowed,
                    follow=[plan for plan in follow[kind] if plan is not None],
                ),
            )
        except BudgetInfeasible:
            return None  # by scaled figures, which leave room; measuring decides
        times.note("plan", f"{told(plan)}, nothing measured")
        steps[kind] = apply_plan(chosen, plan)
        times.note("rewrite")
    return steps


def _agreed(
    ranks: Ranks, graph: StepGraph, variant: StepGraph | None, make: Callable[[], tuple[StepGraph, StepPlan]]
) -> tuple[StepGraph, StepPlan]:
    """The graph and the plan that `make` gives on the first rank, for this rank's own graphs."""
    if ranks.alone:
        return make()
    (plan,) = PlanFile.of_text(ranks.decided("planning", lambda: PlanFile((make()[1],)).text())).plans
    chosen = variant if plan.signs and variant is not None else graph
    return chosen, replace(plan, step=identity(chosen))


def told(plan: StepPlan) -> str:
    """A plan in half a line."""
    forecast = Forecast(plan)
    if not plan.rewritten:
        return f"everything fits into {format_bytes(plan.budget)} as it is"
    return f"{format_bytes(forecast.peak)} of {format_bytes(plan.budget)}, {100 * forecast.overhead:+.1f} % time"


def _whole(traced: Traced, graphs: Mapping[Micro, StepGraph], wanted: Options) -> StepGraph:
    """The step without accumulation, which is what is measured."""
    return graphs.get(Micro.ONLY) or traced.finish(UpdateForm(Micro.ONLY, wanted.clip_grad_norm, wanted.keep_gradients))


def _variants(
    traced: Traced, graphs: Mapping[Micro, StepGraph], signed: StepGraph | None
) -> dict[Micro, tuple[StepGraph, StepGraph | None]]:
    """Each kind of step, and what it is with signs where these are worthwhile."""
    return {k: (g, None if signed is None else traced.finish(g.ending, signs=True)) for k, g in graphs.items()}


def _planning_seconds(measured: Profile, wanted: Options, kinds: int, spent: float) -> float:
    if wanted.time_limit is None:
        return min(60.0, max(5.0, PLANNING_STEPS * measured.step_ms / 1000))
    return (wanted.time_limit - spent) / kinds


def _worthwhile_signs(traced: Traced, whole: StepGraph) -> StepGraph | None:
    """The variant that keeps signs instead of ReLU results, where that saves enough to be planned as well."""
    if not traced.signs:
        return None
    signed = traced.finish(whole.ending, signs=True)
    saved = sum(signed.storages[result].bytes for result in signed.signs.values())
    return signed if saved > WORTH * (max(whole.live_bytes) - whole.resident_bytes) else None


def provisional_seconds(graph: StepGraph, time_limit: float | None) -> float:
    """For all attempts at a provisional plan: half of it for the first, the rest where that finds none."""
    usual = 2 * min(MOST_SECONDS, max(LEAST_SECONDS, SECONDS_PER_OP * len(graph.ops)))
    return usual if time_limit is None else min(usual, PROVISIONAL_SHARE * time_limit)


def provisional_step(
    graph: StepGraph, signs: StepGraph | None, budget: int | str, *, seconds: float, say: Say, ranks: Ranks = ALONE
) -> StepGraph | None:
    """`graph` rewritten to stay well inside `budget` by an estimate of it, to be measured that way; None where it fits
    as it is. Where there is a variant with `signs`, that is what is rewritten, as it can do with fewer bytes."""
    return _provisional(graph, signs, budget, seconds=seconds, say=say, ranks=ranks)[0]


def _provisional(
    graph: StepGraph, signs: StepGraph | None, budget: int | str, *, seconds: float, say: Say, ranks: Ranks
) -> tuple[StepGraph | None, bool]:
    """The same, and whether it is well inside, which an estimate near the least that can be reached is not."""
    estimated = merged(estimate(graph), ranks)
    whole = parse_bytes(budget, whole=estimated.step_peak_B)
    room = int(ROOM * whole)
    if estimated.step_peak_B <= room:
        return None, True
    if signs is not None:
        graph, estimated = signs, merged(estimate(signs), ranks)
    step, optimal = problem_of(graph, estimated), planner("optimal", estimated.step_peak_B)
    say("a first plan, to measure with")

    def make() -> str:
        try:
            order, fits = optimal.plan(step.problem, room, time_limit=seconds / 2).schedule.ops, True
        except BudgetInfeasible as infeasible:
            order, fits = _near_the_floor(graph, step, optimal, infeasible, whole, seconds / 2), False
        return json.dumps([order, fits])

    order, fits = json.loads(ranks.decided("planning", make))
    rewritten = rewrite(graph, step.actions, without_idle_runs(step.problem, order))
    verify(graph, rewritten)
    return rewritten, fits


def _near_the_floor(
    graph: StepGraph, step: StepProblem, optimal: Policy, infeasible: BudgetInfeasible, budget: int, seconds: float
) -> tuple[int, ...]:
    """An order close to the least peak that was found: the fastest inside `budget`, else the one that takes least.

    At the least peak itself a step can take many times as long, and a search that is short may miss it.
    """
    levels = [int(share * infeasible.floor) for share in NEAR_THE_FLOOR]
    inside, above = [x for x in levels if x <= budget], [x for x in levels if x > budget]
    for level in (*reversed(inside), *above):
        try:
            return optimal.plan(step.problem, level, time_limit=seconds / len(levels)).schedule.ops
        except BudgetInfeasible:
            continue
    raise BudgetUnreachable(infeasible, graph, step) from None
