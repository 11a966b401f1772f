"""`lowtide.fit`: does a training step fit a device, as it is or with a plan? Nothing is allocated and nothing runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from lowtide.errors import InputError
from lowtide.fitting.caching import OutOfMemory, reserved
from lowtide.fitting.checkpointing import check_checkpoint, usual
from lowtide.fitting.devices import HERE, Device, find_device
from lowtide.fitting.fusing import check_compiled, fuse
from lowtide.fitting.rank import SUMMED, Rank, accumulating
from lowtide.fitting.record import MOST_UNITS, Fit, FitPart, Moment, PlannedFit, Stage
from lowtide.fitting.sharding import AHEAD, BUCKETS, COPY, GATHERED, PIECE, ROOT, Links, block_of, check_world, spread
from lowtide.fitting.sketch import Sketch, sketch
from lowtide.forecast import Forecast
from lowtide.graph.step_graph import StepGraph
from lowtide.planning.optimal.search import plan as optimal
from lowtide.planning.policies import BudgetInfeasible
from lowtide.planning.problem import Problem
from lowtide.planning.simulate import Timeline, simulate
from lowtide.profiling.problem import with_states, without_idle_runs
from lowtide.records.vocabulary import Role
from lowtide.tracing.loss import Loss
from lowtide.training.pipeline import StageTimes
from lowtide.training.planned import make_plan
from lowtide.units import format_bytes, parse_bytes

CURVE_POINTS = 600
CAPTURE = "capture"


@dataclass(frozen=True)
class Setting:
    """How the step runs without a plan; what makes no sense is refused before anything is captured."""

    world: int = 1
    parallel: str = "fsdp"
    checkpoint: str = "none"
    tensor: int = 1
    """With fsdp+tp, so many devices share each layer; with tp all do."""
    compiled: str = "none"
    """What torch.compile takes: nothing, every block by itself, or the model."""
    sequence: bool = False
    """Where layers are shared: tokens between them too."""
    accumulate: int = 0
    """Batches between updates; with one, gradients stay as well, and 0 is to let them go."""

    def __post_init__(self) -> None:
        check_compiled(self.compiled)
        check_world(self.world, self.parallel, self.sharing)
        check_checkpoint(self.checkpoint)
        if self.sequence and self.sharing == 1:
            raise InputError("sequence parallel belongs to tensor parallel: take --parallel tp or fsdp+tp")
        if not 0 <= self.accumulate <= MOST_UNITS:
            raise InputError(f"gradients are summed over 1 batch or more, not {self.accumulate}")

    @property
    def sharing(self) -> int:
        """How many devices share each layer."""
        return {"tp": self.world, "fsdp+tp": self.tensor}.get(self.parallel, 1)

    @property
    def as_it_trains(self) -> bool:
        """One device alone, or one that shares layers, with ops as they are captured."""
        return self.world == self.sharing and self.compiled == "none" and not self.accumulate

    def of(self, drawn: Sketch, device: Device) -> tuple[Rank, tuple[int, ...]]:
        """One device's problem and order."""
        compiled = self.compiled != "none"
        return usual(self.rank(drawn, device), drawn.plain.graph, self.checkpoint, compiled=compiled)

    def rank(self, drawn: Sketch, device: Device) -> Rank:
        """One device's problem."""
        links = Links(device.peer_bytes_per_ms, device.network_bytes_per_ms)
        step = fuse(drawn.late, drawn.plain.graph, self.compiled, device.rates)
        rank = spread(step, drawn.plain.graph, self.world, self.parallel, links, self.sharing)
        return accumulating(rank, drawn.plain.graph, self.accumulate) if self.accumulate else rank


def fit(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Any,
    loss: Loss | None = None,
    *,
    device: str = HERE,
    world: int = 1,
    parallel: str = "fsdp",
    tensor: int = 1,
    sequence: bool = False,
    checkpoint: str = "none",
    compiled: str = "none",
    accumulate: int = 0,
    budget: int | str | None = None,
    time_limit: float = 30.0,
) -> Fit:
    """Say whether one training step fits `device`, as it is or with a plan.

    `model` may be on the meta device (`with torch.device("meta"): ...`), and so may the batch, which then counts as
    ones. `device` is a name of `lowtide/fitting/devices.json`, "this machine", or a file with the same fields.
    With a `world` of more than one, so many devices share the step: `fsdp` shards parameters, gradients and optimizer
    state as FSDP2 does, blocks gathered where they are used, `hsdp` does so inside of nodes of eight, `ddp` shards
    nothing, `tp` shares each layer as `model.tp_plan` says (transformers' models have one), `fsdp+tp` does so among
    `tensor` devices and shards over the others, with `sequence` the tokens between layers too; `batch` is then that of
    one device, or of those that share layers. `compiled` is what torch.compile takes, nothing, `blocks` or the `model`;
    `accumulate` so many batches for one update, with one of which gradients stay between steps as well.
    `checkpoint` says what the step without a plan lets go: nothing, or per block `selective` or `full`. `budget` is
    bytes, or a share of the step's peak; without one it is what the device leaves to tensors. Bytes are those of the
    captured step, workspaces estimated; times are estimates.
    """
    found = find_device(device)
    setting = Setting(world, parallel, checkpoint, tensor, compiled, sequence, accumulate)
    limit_of(found, budget, 1)
    times = StageTimes()
    drawn = sketch(model, optimizer, batch, loss, found.rates, gpu=found.gpu, tensor=setting.sharing, sequence=sequence)
    times.note(CAPTURE)
    return judge(drawn, found, budget, setting, time_limit=time_limit, times=times)


def judge(
    drawn: Sketch,
    device: Device,
    budget: int | str | None,
    setting: Setting = Setting(),  # noqa: B008 - frozen
    *,
    time_limit: float,
    times: StageTimes | None = None,
) -> Fit:
    """Does it fit, and what would a plan cost?"""
    graph = drawn.plain.graph
    times = times or StageTimes()
    rank, order = setting.of(drawn, device)
    timeline = simulate(rank.problem, order)
    times.note("problem and step as it is")
    limit = limit_of(device, budget, timeline.peak)
    plan, least = None, None
    if timeline.peak > limit or setting.checkpoint != "none":  # where it recomputes anyway, a plan may do better
        try:
            plan = planned(drawn, device, setting, timeline, limit, time_limit)
        except BudgetInfeasible as infeasible:
            least = min(infeasible.floor, timeline.peak, _checkpointed_peak(drawn, device, setting))
        times.note("plan")
    taken, finds_room = _reserved(rank, order, limit) if device.gpu else (None, timeline.peak <= limit)
    times.note("allocator")
    return Fit(
        model=type(graph.model).__name__,
        parameters=drawn.parameters,
        optimizer=drawn.plain.profile.optimizer,
        batch=graph.form.lines,
        samples=drawn.samples,
        tokens=drawn.tokens,
        world=setting.world,
        parallel=setting.parallel,
        tensor=setting.sharing,
        sequence=setting.sequence,
        compiled=setting.compiled,
        accumulate=setting.accumulate,
        checkpoint=setting.checkpoint,
        device=device.name,
        source=device.source,
        memory_B=device.memory_B,
        budget_B=limit,
        ops=len(graph.ops),
        parts=_parts(graph, rank, timeline),
        peak_B=timeline.peak,
        reserved_B=taken,
        finds_room=finds_room,
        step_ms=timeline.time,
        curve=_curve(rank.problem, order, timeline),
        plan=plan,
        least_B=least,
        bytes_error=device.bytes_error,
        time_error=device.time_error,
        largest_batch=None,
        largest_length=None,
        devices_needed=None,
        seconds=tuple(Stage(what, seconds) for what, seconds in times.seconds.items()),
    )


def limit_of(device: Device, budget: int | str | None, whole: int) -> int:
    """What the step may take; a budget can be a share of `whole`."""
    limit = device.usable_B if budget is None else parse_bytes(budget, whole=whole)
    if limit > device.memory_B:
        raise InputError(
            f"a budget of {format_bytes(limit)} is above the {format_bytes(device.memory_B)} of {device.name}: ask for "
            "less, or for a larger device"
        )
    return limit


def planned(
    drawn: Sketch, device: Device, setting: Setting, usually: Timeline, limit: int, time_limit: float
) -> PlannedFit:
    """The best plan inside of `limit`, compared with the step as it is. BudgetInfeasible where there is none."""
    if setting.as_it_trains:  # as a training step is planned
        _, found = make_plan(drawn.plain, drawn.signs, limit, name="optimal", time_limit=time_limit, say=lambda _: None)
        exact, order, timeline = found.exact, found.exact_order, Forecast(found).timeline
        least = (1 + found.bound) * found.base_time
    else:
        rank = setting.rank(drawn, device)
        # By counted work alone: on a busy machine the clock would cut the search short, and plans near the least that
        # a rank can take are the last to get good.
        plan = optimal(rank.problem, limit, time_limit=time_limit, clock=False)
        exact, order = with_states(rank.step, without_idle_runs(rank.problem, plan.schedule.ops))
        timeline = simulate(exact, order)
        least = (1 + plan.bound) * rank.problem.base_time
    return PlannedFit(
        peak_B=timeline.peak,
        step_ms=timeline.time,
        overhead=timeline.time / usually.time - 1,
        bound=least / usually.time - 1,
        curve=_curve(exact, order, timeline),
    )


def _checkpointed_peak(drawn: Sketch, device: Device, setting: Setting) -> int:
    """With every block checkpointed: what is known to be reachable where no plan is. Without blocks, as it is."""
    drawn_blocks = any(block_of(f"{op.module}.x") != ROOT for op in drawn.plain.graph.ops)
    rank, order = replace(setting, checkpoint="full" if drawn_blocks else "none").of(drawn, device)
    return simulate(rank.problem, order).peak


def _reserved(rank: Rank, order: Sequence[int], limit: int) -> tuple[int, bool]:
    """What the caching allocator takes where it may, and whether it gets by with `limit`."""
    taken = reserved(rank, order)
    if taken <= limit:
        return taken, True
    try:
        reserved(rank, order, limit)
    except OutOfMemory:
        return taken, False
    return taken, True


def _curve(problem: Problem, order: Sequence[int], timeline: Timeline) -> tuple[Moment, ...]:
    """Live bytes over the step, the highest of each of some hundred stretches."""
    width = -(-len(order) // CURVE_POINTS)
    times, now = [], 0.0
    for op in order:
        times.append(now)
        now += problem.times[op]
    return tuple(Moment(times[k], max(timeline.live[k : k + width])) for k in range(0, len(order), width))


_ADDED = {
    GATHERED: Role.PARAMETER,
    AHEAD: Role.PARAMETER,
    PIECE: Role.GRADIENT,
    COPY: Role.GRADIENT,
    BUCKETS: Role.GRADIENT,
    SUMMED: Role.GRADIENT,
}
"""What many devices add counts as what it holds."""


def _parts(graph: StepGraph, rank: Rank, timeline: Timeline) -> tuple[FitPart, ...]:
    """What the peak is made of."""
    known, storages = graph.storages, rank.problem.storages
    sizes = dict.fromkeys(Role, 0)
    alive = [(s, storage.bytes) for s, storage in enumerate(storages) if storage.resident]
    for number, size in (*alive, *timeline.alive):
        name = storages[number].name
        if number < len(known):
            sizes[known[number].role] += size
        else:
            role = next((role for ending, role in _ADDED.items() if name.endswith(ending)), Role.OTHER)
            sizes[role] += size
    rest = timeline.peak - sum(sizes.values())
    return (*(FitPart(role.value, size) for role, size in sizes.items()), FitPart("workspace", rest))
