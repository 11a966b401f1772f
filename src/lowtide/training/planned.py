"""One kind of step made to fit: captured, measured, planned, rewritten, verified."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lowtide.device.chosen_kernels import warn_of_chosen_kernels
from lowtide.errors import LowtideError, PlanMismatch, shortened
from lowtide.forecast import Forecast
from lowtide.graph.ops import Op
from lowtide.graph.step_graph import StepGraph
from lowtide.graph.storing import make_tables
from lowtide.optimizer.update import Micro
from lowtide.planning.apart import planner
from lowtide.planning.policies import BudgetInfeasible, Plan, frontier_policy, in_the_way
from lowtide.planning.problem import Problem
from lowtide.planning.schedule import Schedule
from lowtide.planning.simulate import simulate
from lowtide.profiling.beside import Links, beside, hidden
from lowtide.profiling.problem import Lanes, StepProblem, problem_of, with_states, without_idle_runs
from lowtide.records.profile import Profile
from lowtide.records.step_plan import AS_IT_IS, EVERYTHING, Allowed, StepPlan
from lowtide.records.vocabulary import Purpose
from lowtide.rewriting.rewrite import rewrite
from lowtide.rewriting.verify import verify
from lowtide.tracing.capture import Traced
from lowtide.training.following import followed
from lowtide.training.identity import identity
from lowtide.units import format_bytes

Say = Callable[[str], None]
NO_LINKS: Links = {}
"""Of a training in one process."""


@dataclass(frozen=True)
class Planned:
    """A step ready to run; `plan` is None where no budget was given."""

    captured: StepGraph
    graph: StepGraph
    """What runs: the captured graph, or the rewritten one."""
    plan: StepPlan | None

    @cached_property
    def predicted_peak(self) -> int | None:
        """Bytes, by the simulator; None without a plan."""
        return None if self.plan is None else Forecast(self.plan).peak

    @cached_property
    def extra_seconds(self) -> float:
        """What the plan adds to the captured step, by the simulator."""
        if self.plan is None or not self.plan.rewritten:
            return 0.0
        return max(0.0, Forecast(self.plan).timeline.time - self.plan.base_time) / 1000


class BudgetUnreachable(BudgetInfeasible):
    """The budget cannot be met: by how much, because of what, and what would help."""

    def __init__(self, cause: BudgetInfeasible, graph: StepGraph, step: StepProblem) -> None:
        self.budget, self.floor, self.proven, self.blockers = cause.budget, cause.floor, cause.proven, cause.blockers
        self.workspace = cause.workspace
        things = [(size, _storage_name(graph, s)) for s, size in cause.blockers if s < len(graph.storages)]
        things += [(cause.workspace[1], _workspace_name(graph, step, cause.workspace[0])), (step.states_B, _STATES)]
        resident = step.problem.resident_bytes - step.states_B
        how = "no plan can fit the step into" if cause.proven else "no plan was found that fits the step into"
        helps = "a smaller batch"
        if resident > cause.budget:
            helps = "an optimizer with less state or a smaller model; a smaller batch will not do"
        elif any(op.is_update and len(op.outputs) > 1 for op in graph.ops):
            helps += ", or an optimizer that can update parameters one by one (torch's own, no hooks, no clipping)"
        LowtideError.__init__(
            self,
            f"{how} {format_bytes(cause.budget)} ({cause.budget} bytes): the least reachable peak found is "
            f"{format_bytes(cause.floor)} ({cause.floor} bytes), of which {format_bytes(resident)} are parameters, "
            f"buffers, optimizer state and the batch{in_the_way(things)}. What would help: {helps}",
        )


_STATES = "the random generator's states, to run random ops again,"


def _storage_name(graph: StepGraph, storage: int) -> str:
    maker = graph.storages[storage].maker
    return graph.storages[storage].name + ("" if maker is None else _place(graph.ops[maker]))


def _workspace_name(graph: StepGraph, step: StepProblem, name: str) -> str:
    """What takes the workspace: the op of the graph and its place, where the problem's op called `name` stands for
    one."""
    ranks = [action.ranks for op, action in zip(step.problem.ops, step.actions, strict=True) if op.name == name]
    if not ranks or not ranks[0]:
        return f"the workspace of {name}"
    op = graph.ops[ranks[0][0]]
    return f"the workspace of {name}, {op.op}{_place(op)}"


def _place(op: Op) -> str:
    return f" ({op.module or 'root'}, {op.source})"


@dataclass(frozen=True)
class Variant:
    """A step that computes what the captured one does, and its profile."""

    graph: StepGraph
    profile: Profile


def make_plan(
    plain: Variant,
    signs: Variant | None,
    budget: int,
    *,
    name: str,
    time_limit: float,
    say: Say,
    lanes: Lanes | None = None,
    links: Links = NO_LINKS,
    allowed: Allowed = EVERYTHING,
    follow: Sequence[StepPlan] = (),
) -> tuple[StepGraph, StepPlan]:
    """Plan the measured step into `budget` bytes by the policy called `name`; returns the graph that the plan is for.

    Where the step does not fit as it is, its variant that keeps signs is planned as well, and the faster plan wins.
    With `lanes` values can be swapped, with `links` collectives go on beside compute. `follow` are plans for other
    shapes of the same step: where the decisions of one of them fit, nothing is searched.
    """
    late = problem_of(plain.graph, plain.profile, allowed=AS_IT_IS)
    taken = simulate(late.problem, late.problem.program).peak - late.states_B
    unplanned = max(taken, _measured_peak(plain.graph, plain.profile))
    if unplanned <= budget:
        whole = _step_plan(plain.graph, late, None, budget, name, unplanned)
        return plain.graph, whole if not links else _as_it_is(plain, whole, links, allowed)
    variants = [variant for variant in (plain, signs) if variant]
    problems = [(v.graph, problem_of(v.graph, v.profile, lanes=lanes, allowed=allowed)) for v in variants]
    base = problems[0][1].problem.base_time
    found: list[tuple[StepGraph, StepPlan]] = []
    for graph, step in problems if follow else ():
        more = step.problem.base_time - base
        for plan in _following(graph, step, follow, name):
            record = _step_plan(graph, step, plan, budget, name, unplanned, signs_time=more, links=links)
            found += [(graph, record)] if Forecast(record).peak <= budget else []
    if found:
        return min(found, key=lambda entry: Forecast(entry[1]).timeline.time)
    failed: list[tuple[BudgetInfeasible, StepGraph, StepProblem]] = []
    for graph, step in problems:
        priced, least = _priced(step, links), 0.0
        for problem in priced:
            seconds = time_limit / len(problems) / len(priced)
            try:
                plan = planner(name, unplanned).plan(problem, budget, time_limit=seconds, progress=say)
            except BudgetInfeasible as infeasible:
                failed.append((infeasible, graph, step))
                continue
            least = plan.bound * problem.base_time / step.problem.base_time if problem is priced[0] else least
            plan, more = replace(plan, bound=least), step.problem.base_time - base
            found.append((graph, _step_plan(graph, step, plan, budget, name, unplanned, signs_time=more, links=links)))
    if not found:
        cause, graph, step = min(failed, key=lambda entry: entry[0].floor)
        cause.proven = all(other.proven for other, *_ in failed)
        raise BudgetUnreachable(cause, graph, step)
    return min(found, key=lambda entry: Forecast(entry[1]).timeline.time)


def _priced(step: StepProblem, links: Links) -> list[Problem]:
    """What is searched: where values can be gathered again, first as if that were hidden behind compute, since the
    order decides how much of it is, and what is never faster than that is the bound; and the problem as it is."""
    again = any(op.name in links and not op.once for op in step.problem.ops)
    return [hidden(step.problem, links), step.problem] if again else [step.problem]


def _as_it_is(plain: Variant, whole: StepPlan, links: Links, allowed: Allowed) -> StepPlan:
    """The step that fits, with collectives beside compute where that is faster."""
    step = problem_of(plain.graph, plain.profile, allowed=replace(allowed, recompute=False, pack=False))
    order = step.problem.program
    alone = simulate(step.problem, order)
    plan = Plan(Schedule(order), whole.policy, alone.peak, alone.time, 0.0, 0.0, 0.0, "everything fits")
    beside = _step_plan(plain.graph, step, plan, whole.budget, whole.policy, whole.unplanned_peak, links=links)
    forecast = Forecast(beside)
    return beside if forecast.peak <= whole.budget and forecast.timeline.time < whole.base_time else whole


def _following(graph: StepGraph, step: StepProblem, others: Sequence[StepPlan], name: str) -> Iterator[Plan]:
    """Whatever `others` decide, and nothing but early updates, as plans for `step`; each once, fitting or not."""
    alike = (followed(plan, step) for plan in others if bool(plan.signs) == bool(graph.signs))
    orders = {step.problem.program: "only updates run early"}
    orders |= dict.fromkeys((order for order in alike if order is not None), "decided as for another shape of batch")
    for order, note in orders.items():
        timeline = simulate(step.problem, order)
        schedule = Schedule(order)
        yield Plan(schedule, name, timeline.peak, timeline.time, timeline.overhead, bound=0.0, seconds=0.0, note=note)


def frontier_plans(variant: Variant, *, points: int, time_limit: float, say: Say) -> list[StepPlan]:
    """Plans of the measured step, from what it takes as it is down to the least reached."""
    step = problem_of(variant.graph, variant.profile)
    found = frontier_policy().frontier(step.problem, points=points, time_limit=time_limit, progress=say)
    unplanned = simulate(step.problem, step.problem.program).peak - step.states_B
    whole = _step_plan(variant.graph, step, None, unplanned, "optimal", unplanned)
    others = [plan for plan in found if plan.schedule.ops != step.problem.program]
    return [whole, *(_step_plan(variant.graph, step, plan, plan.peak, "optimal", unplanned) for plan in others)]


def _step_plan(
    graph: StepGraph,
    step: StepProblem,
    plan: Plan | None,
    budget: int,
    name: str,
    unplanned: int,
    *,
    signs_time: float = 0.0,
    links: Links = NO_LINKS,
) -> StepPlan:
    """The record of `plan`, or of nothing to do; overheads are shares of the captured step, without signs.

    With `links` collectives go on beside compute where that is faster. Then no schedule is faster than one that
    recomputes as little as any must, while all that compute can be without is hidden.
    """
    order, bound, seconds, note = step.problem.program, 0.0, 0.0, "everything fits as it is"
    if plan is not None:
        order = without_idle_runs(step.problem, plan.schedule.ops)
        bound, seconds, note = plan.bound, plan.seconds, plan.note
    if graph.signs:
        bound = (1 + bound) * step.problem.base_time / (step.problem.base_time - signs_time) - 1
    if plan is not None and links:
        hideable = step.problem.base_time - hidden(step.problem, links).base_time
        bound -= hideable / (step.problem.base_time - signs_time)
        apart, order = beside(step, order, links, budget)
        step, note = apart, note if apart is step else f"{note}; collectives beside compute"
    exact, exact_order = with_states(step, order)
    return StepPlan(
        step=identity(graph),
        budget=budget,
        policy=name,
        unplanned_peak=unplanned,
        rewritten=plan is not None,
        problem=step.problem,
        actions=step.actions,
        activations=tuple(uses.storage for uses in graph.activations),
        order=tuple(order),
        exact=exact,
        exact_order=exact_order,
        bound=bound,
        seconds=seconds,
        note=note,
        signs=tuple(graph.signs.items()),
        signs_time=signs_time,
    )


def _measured_peak(graph: StepGraph, profile: Profile) -> int:
    """What a plain run took, where the profile is of this very step."""
    return profile.step_peak_B if graph.ending.micro == "only" else 0


def apply_plan(graph: StepGraph, plan: StepPlan, *, where: str | None = None) -> Planned:
    """`graph` rewritten as `plan` says. Where that comes from the file `where`, PlanMismatch says what does not fit."""
    if where is None:
        return _applied(graph, plan)
    difference = plan.step.difference(identity(graph))
    if difference is not None:
        raise PlanMismatch(f"{where} does not fit this training step: {shortened(difference, 300)}; plan anew")
    try:
        return _applied(graph, plan)
    except (AssertionError, LookupError, ValueError, StopIteration, RuntimeError) as error:
        said = shortened(f"{type(error).__name__}: {error}", 200)
        raise PlanMismatch(
            f"{where} is damaged: its schedule does not belong to its step ({said}); plan anew"
        ) from None


def _applied(graph: StepGraph, plan: StepPlan) -> Planned:
    if not plan.rewritten:
        return Planned(graph, graph, plan)
    rewritten = rewrite(graph, plan.actions, plan.order)
    verify(graph, rewritten)
    make_tables(rewritten.ops, graph.device)
    again = (op for op in rewritten.ops if op.purpose is Purpose.RECOMPUTE and op.outputs)
    warn_of_chosen_kernels((op.op for op in again if "float" in op.outputs[0].dtype), graph.device)
    return Planned(graph, rewritten, plan)


def taken_over(
    traced: Traced, graphs: Mapping[Micro, StepGraph], others: Mapping[Micro, Planned]
) -> dict[Micro, Planned] | None:
    """The plans of `others` for `graphs`, where these differ from their steps in numbers alone; None where not."""
    steps = {}
    for kind, graph in graphs.items():
        plan = others[kind].plan
        if plan is None or others[kind].captured.form != graph.form:
            return None
        if plan.signs:
            graph = traced.finish(graph.ending, signs=True)
        if identity(graph, numbers=False) != identity(others[kind].captured, numbers=False):
            return None
        steps[kind] = apply_plan(graph, replace(plan, step=identity(graph)))
    return steps
