"""`lowtide.fit`: does a training step fit a device, as it is or with a plan? Nothing is allocated and nothing runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from lowtide.errors import InputError
from lowtide.fitting.devices import HERE, Device, find_device
from lowtide.fitting.record import Fit, FitPart, Moment, PlannedFit
from lowtide.fitting.sharding import GATHERED, PIECE, recomputing, selective, shard
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.optimizer.update import UpdateForm
from lowtide.planning.policies import BudgetInfeasible, policy
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import Timeline, simulate
from lowtide.profiling.estimate import Rates, estimate
from lowtide.profiling.problem import StepProblem, problem_of, with_states, without_idle_runs
from lowtide.records.step_plan import AS_IT_IS
from lowtide.records.vocabulary import Role
from lowtide.tracing.capture import trace
from lowtide.tracing.loss import Loss
from lowtide.tracing.weightless import with_shapes_alone
from lowtide.training.planned import Variant, make_plan
from lowtide.units import parse_bytes

CURVE_POINTS = 600
MOST_SAMPLES = 1 << 20
"""No larger batch is looked for: a step that does not grow with its batch would fit for ever."""


@dataclass(frozen=True)
class Sketch:
    """A step known by its shapes alone, with the times of one device."""

    plain: Variant
    signs: Variant | None
    samples: int

    @property
    def late(self) -> StepProblem:
        """As people train: all parameters move at the end."""
        return problem_of(self.plain.graph, self.plain.profile, allowed=AS_IT_IS)


def fit(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None = None,
    *,
    device: str = HERE,
    world: int = 1,
    budget: int | str | None = None,
    time_limit: float = 30.0,
) -> Fit:
    """Say whether one training step fits `device`, as it is or with a plan.

    `model` may be on the meta device (`with torch.device("meta"): ...`), and so may the batch, which then counts as
    ones. `device` is a name of `lowtide/fitting/devices.json`, "this machine", or a file with the same fields.
    With a `world` of more than one, parameters, gradients and optimizer state are sharded over so many devices as FSDP2
    does, blocks gathered where they are used; `batch` is then that of one device. `budget` is bytes, or a share of the
    step's peak; without one it is what the device leaves to tensors. Bytes are those of the captured step, workspaces
    estimated; times are estimates.
    """
    found = find_device(device)
    begin = perf_counter()
    drawn = sketch(model, optimizer, batch, loss, found.rates)
    captured = perf_counter() - begin
    return judge(drawn, found, budget, world=world, time_limit=time_limit, captured=captured)


def sketch(
    model: nn.Module,
    optimizer: Optimizer | Callable[[nn.Module], Optimizer],
    batch: Any,
    loss: Loss | None,
    rates: Rates,
) -> Sketch:
    """Capture a step without its weights. An optimizer that refuses parameters without data is made by a function."""
    values = with_values(batch)
    leaves = [x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)]
    samples = leaves[0].shape[0] if leaves and leaves[0].dim() else 1
    with with_shapes_alone(model, optimizer) as optimizer:
        traced = trace(model, optimizer, values, loss)
        graphs = [traced.finish(UpdateForm())]
        if traced.signs:
            graphs.append(traced.finish(UpdateForm(), signs=True))
        plain, *signs = (Variant(graph, estimate(graph, rates)) for graph in graphs)
    return Sketch(plain, signs[0] if signs else None, samples)


def with_values(batch: Any) -> Any:
    """`batch` on the CPU: what is on the meta device becomes ones, which masks, labels and token numbers can be."""

    def real(x: Tensor) -> Tensor:
        return torch.ones(x.shape, dtype=x.dtype) if x.is_meta else x

    return pytree.tree_map_only(Tensor, real, batch)


def judge(
    drawn: Sketch,
    device: Device,
    budget: int | str | None,
    *,
    time_limit: float,
    world: int = 1,
    checkpointed: bool = False,
    captured: float = 0.0,
) -> Fit:
    """Does it fit, and what would a plan cost?

    With `checkpointed` the plan is compared with torchtitan's selective checkpointing; that needs a `world`.
    """
    graph, step = drawn.plain.graph, drawn.late
    order: Sequence[int] = step.problem.program
    if world != 1:
        sharded = shard(step, graph, world, device.peer_bytes_per_ms)
        dropped = selective(sharded, graph) if checkpointed else sharded.gathered
        step, order = sharded.step, recomputing(sharded, dropped)
    timeline = simulate(step.problem, order)
    limit = device.usable_B if budget is None else parse_bytes(budget, whole=timeline.peak)
    if limit > device.memory_B:
        raise InputError(f"a budget of {limit} bytes is above the {device.memory_B} of {device.name}: ask for less")
    begin = perf_counter()
    plan, least = None, None
    if timeline.peak > limit:
        try:
            alone = world == 1
            plan = _planned(drawn, limit, time_limit) if alone else _planned_rank(step, timeline, limit, time_limit)
        except BudgetInfeasible as infeasible:
            least = infeasible.floor
    parameters = {id(p): p for p in graph.model.parameters()}
    return Fit(
        model=type(graph.model).__name__,
        parameters=sum(p.numel() for p in parameters.values()),
        optimizer=drawn.plain.profile.optimizer,
        batch=graph.form.lines,
        samples=drawn.samples,
        world=world,
        device=device.name,
        source=device.source,
        memory_B=device.memory_B,
        budget_B=limit,
        ops=len(graph.ops),
        parts=_parts(graph, step, timeline),
        peak_B=timeline.peak,
        step_ms=timeline.time,
        curve=_curve(step.problem, order, timeline),
        plan=plan,
        least_B=least,
        seconds=(captured, perf_counter() - begin),
    )


def _planned(drawn: Sketch, limit: int, time_limit: float) -> PlannedFit:
    """On one device: as a training step is planned."""
    _, plan = make_plan(drawn.plain, drawn.signs, limit, name="optimal", time_limit=time_limit, say=lambda _: None)
    forecast = Forecast(plan)
    return PlannedFit(
        peak_B=forecast.peak,
        step_ms=forecast.timeline.time,
        overhead=forecast.overhead,
        bound=plan.bound,
        curve=_curve(plan.exact, plan.exact_order, forecast.timeline),
    )


def _planned_rank(step: StepProblem, usual: Timeline, limit: int, time_limit: float) -> PlannedFit:
    """On one of several devices; `usual` is what is compared with."""
    plan = policy("optimal").plan(step.problem, limit, time_limit=time_limit)
    exact, order = with_states(step, without_idle_runs(step.problem, plan.schedule.ops))
    timeline = simulate(exact, order)
    return PlannedFit(
        peak_B=timeline.peak,
        step_ms=timeline.time,
        overhead=timeline.time / usual.time - 1,
        bound=(1 + plan.bound) * step.problem.base_time / usual.time - 1,
        curve=_curve(exact, order, timeline),
    )


def _curve(problem: Problem, order: Sequence[int], timeline: Timeline) -> tuple[Moment, ...]:
    """Live bytes over the step, the highest of each of some hundred stretches."""
    width = -(-len(order) // CURVE_POINTS)
    times, now = [], 0.0
    for op in order:
        times.append(now)
        now += problem.times[op]
    return tuple(Moment(times[k], max(timeline.live[k : k + width])) for k in range(0, len(order), width))


def _parts(graph: StepGraph, step: StepProblem, timeline: Timeline) -> tuple[FitPart, ...]:
    """What the peak is made of. What sharding adds, gathered parameters and gradients of shards, counts as such."""
    known, storages = graph.storages, step.problem.storages
    sizes = dict.fromkeys(Role, 0)
    alive = [(s, storages[s].bytes) for s, storage in enumerate(known) if storage.resident]
    for number, size in (*alive, *timeline.alive):
        if number < len(known):
            sizes[known[number].role] += size
        elif storages[number].name.endswith(GATHERED):
            sizes[Role.PARAMETER] += size
        elif storages[number].name.endswith(PIECE):
            sizes[Role.GRADIENT] += size
    rest = timeline.peak - sum(sizes.values())
    return (*(FitPart(role.value, size) for role, size in sizes.items()), FitPart("workspace", rest))


def largest(
    make: Callable[[int], Sketch], device: Device, budget: int | str | None, *, time_limit: float
) -> tuple[int, int]:
    """The largest number of samples that fits as it is, and with a plan, to within a thirty-second of it.

    Two captures are enough where their ops are the same: every storage's bytes grow in proportion.
    """
    one, two = make(1), make(2)
    between = _Between(one, two)

    def fits(samples: int) -> bool:
        return judge_peak(between.at(samples)) <= limit

    limit = device.usable_B if budget is None else parse_bytes(budget, whole=device.memory_B)

    def trains(samples: int) -> bool:
        try:
            _planned(between.at(samples), limit, time_limit)
        except BudgetInfeasible:
            return False
        return True

    plain = _last(fits, 0)
    return plain, _last(lambda n: n <= plain or trains(n), plain)


def judge_peak(drawn: Sketch) -> int:
    """Bytes of the step as it is."""
    late = drawn.late
    return simulate(late.problem, late.problem.program).peak


def _last(holds: Callable[[int], bool], known: int) -> int:
    """The largest number for which it holds, nearly; it holds for `known`, and for no more once it fails."""
    step = max(1, known)
    low = known
    while low + step <= MOST_SAMPLES and holds(low + step):
        low += step
        step *= 2
    if low + step > MOST_SAMPLES:
        return low
    high = low + step
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class _Between:
    """Steps of any number of samples, from those of one and of two."""

    def __init__(self, one: Sketch, two: Sketch) -> None:
        self._one, self._two = one, two
        names = [[op.name for op in variant.graph.ops] for variant in (one.plain, two.plain)]
        if names[0] != names[1]:
            raise InputError("one sample and two are different steps, so the largest batch cannot be found from them")

    def at(self, samples: int) -> Sketch:
        """With every byte and every time in proportion."""
        pairs = [(self._one.plain, self._two.plain)]
        if self._one.signs is not None and self._two.signs is not None:
            pairs.append((self._one.signs, self._two.signs))
        plain, *signs = (_scaled(one, two, samples) for one, two in pairs)
        return Sketch(plain, signs[0] if signs else None, samples)


def _scaled(one: Variant, two: Variant, samples: int) -> Variant:
    def between(a: float, b: float) -> float:
        return a + (b - a) * (samples - 1)

    first, second = one.profile, two.profile
    storages = tuple(
        replace(a, bytes=int(between(a.bytes, b.bytes))) for a, b in zip(first.storages, second.storages, strict=True)
    )
    ops = tuple(
        replace(
            a,
            runtime_ms=between(a.runtime_ms, b.runtime_ms),
            workspace_B=int(between(a.workspace_B, b.workspace_B)),
        )
        for a, b in zip(first.ops, second.ops, strict=True)
    )
    packs = tuple(
        replace(
            a,
            bytes=int(between(a.bytes, b.bytes)),
            pack_ms=between(a.pack_ms, b.pack_ms),
            unpack_ms=between(a.unpack_ms, b.unpack_ms),
            pack_workspace_B=int(between(a.pack_workspace_B, b.pack_workspace_B)),
            unpack_workspace_B=int(between(a.unpack_workspace_B, b.unpack_workspace_B)),
        )
        for a, b in zip(first.packs, second.packs, strict=True)
    )
    peak = int(between(first.step_peak_B, second.step_peak_B))
    step_ms = sum(op.runtime_ms for op in ops)
    return Variant(
        one.graph, replace(first, storages=storages, ops=ops, packs=packs, step_peak_B=peak, step_ms=step_ms)
    )
